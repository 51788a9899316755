"""Tokens of an identity provider: who is let in, and every way of a forged one that is not."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import quacklake
from quacklake.errors import ConfigError, ConnectorUnavailableError, UnauthenticatedError
from quacklake.service.access_gate import AccessGate
from quacklake.service.identity import Role
from quacklake.service.metrics import Requests
from quacklake.service.settings import ServiceSettings
from quacklake.service.state import Service
from quacklake.service.web_tokens import WebTokens
from tests import seeds
from tests.service.serving import sample_lake

ISSUER, AUDIENCE = "https://id.example", "lake"
KEYS: dict[str, Any] = {
    "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ec": ec.generate_private_key(ec.SECP256R1()),
    "other": rsa.generate_private_key(public_exponent=65537, key_size=2048),
}


def jwks(*names: str) -> str:
    shown = []
    for name in names:
        kind = jwt.algorithms.ECAlgorithm if name == "ec" else jwt.algorithms.RSAAlgorithm
        shown.append({**json.loads(kind.to_jwk(KEYS[name].public_key())), "kid": name, "use": "sig"})
    return json.dumps({"keys": shown})


def signed(key: str = "rsa", alg: str = "RS256", kid: str | None = None, **claims: Any) -> str:
    whole = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 60, "iat": time.time(), **claims}
    kept = {name: value for name, value in whole.items() if value is not None}
    return jwt.encode(kept, KEYS[key], algorithm=alg, headers={"kid": kid or key})


def encoded(part: object) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(jwks("rsa", "ec"))
    return path


@pytest.fixture
def tokens(file: Path) -> WebTokens:
    return WebTokens(ISSUER, AUDIENCE, file, leeway=5)


def test_a_token_of_the_provider_names_its_user(tokens: WebTokens) -> None:
    assert tokens.verify(signed()) == "ann"
    assert tokens.verify(signed("ec", "ES256", sub="bob@example.org")) == "bob@example.org"
    assert tokens.verify(signed(aud=["other", AUDIENCE])) == "ann"
    assert tokens.verify(signed(exp=time.time() - 2)) == "ann"  # within the leeway


def forged() -> dict[str, str]:
    public = (
        KEYS["rsa"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 60}
    confused = f"{encoded({'alg': 'HS256', 'kid': 'rsa'})}.{encoded(claims)}"
    mac = hmac.new(public, confused.encode(), hashlib.sha256).digest()
    head, body, signature = signed().split(".")
    return {
        "no algorithm": f"{encoded({'alg': 'none', 'kid': 'rsa'})}.{encoded(claims)}.",
        "None": f"{encoded({'alg': 'None', 'kid': 'rsa'})}.{encoded(claims)}.",
        "public key as secret": f"{confused}.{encoded(mac)}",
        "key of another": signed("other", kid="rsa"),
        "unknown key": signed("other"),
        "other algorithm": signed(alg="RS512"),
        "algorithm of another key": f"{encoded({'alg': 'ES256', 'kid': 'rsa'})}.{body}.{signature}",
        "other audience": signed(aud="shop"),
        "no audience": signed(aud=None),
        "other issuer": signed(iss="https://evil.example"),
        "no issuer": signed(iss=None),
        "expired": signed(exp=time.time() - 10),
        "without an end": signed(exp=None),
        "end that is no number": f"{head}.{encoded({**claims, 'exp': 'never'})}.{signature}",
        "from the future": signed(nbf=time.time() + 100),
        "made in the future": signed(iat=time.time() + 100),
        "without a user": signed(sub=None),
        "a user that is no name": signed(sub="a b; DROP"),
        "an empty user": signed(sub=""),
        "other claims": f"{head}.{encoded({**claims, 'sub': 'root'})}.{signature}",
        "without a signature": f"{head}.{body}.",
        "key in the token": f"{encoded({'alg': 'RS256', 'jwk': json.loads(jwks('other'))['keys'][0]})}.{body}.{signature}",
        "address of keys": f"{encoded({'alg': 'RS256', 'jku': 'http://127.0.0.1:1/', 'kid': 'x'})}.{body}.{signature}",
        "kid that is a path": f"{encoded({'alg': 'RS256', 'kid': '../../etc/passwd'})}.{body}.{signature}",
        "two parts": f"{head}.{body}",
        "nothing": "",
        "dots": "..",
        "not base64": "!.!.!",
        "long": "a." * 2 + "b" * 100_000,
        "deep": f"{head}.{encoded(b'[' * 10_000)}.{signature}",
    }


@pytest.mark.parametrize("way", forged())
def test_a_forged_token_is_refused_without_a_reason(tokens: WebTokens, way: str) -> None:
    with pytest.raises(UnauthenticatedError) as raised:
        tokens.verify(forged()[way])
    assert str(raised.value) == str(UnauthenticatedError())


def test_a_token_that_is_changed_anywhere_is_refused(tokens: WebTokens) -> None:
    chance, token = seeds.chance("web tokens"), signed()
    for _ in range(60):
        place = chance.randrange(len(token))
        letter = chance.choice("ABCxyz019-_.=é")
        changed = chance.choice([token[:place], token[:place] + letter + token[place + 1 :], token + letter])
        if changed.rstrip("=") == token:
            continue
        try:
            # the last letter of a signature has bits that say nothing
            assert tokens.verify(changed) == "ann" and changed[:-1] == token[:-1]
        except UnauthenticatedError:
            continue


def test_an_address_that_is_not_verified_names_nobody(file: Path) -> None:
    by_mail = WebTokens(ISSUER, AUDIENCE, file, claim="email")
    assert by_mail.verify(signed(email="ann@example.org")) == "ann@example.org"
    assert by_mail.verify(signed(email="ann@example.org", email_verified=True)) == "ann@example.org"
    for verified in (False, "false", "true", 0, 1, []):
        with pytest.raises(UnauthenticatedError):
            by_mail.verify(signed(email="ann@example.org", email_verified=verified))


@pytest.mark.parametrize("kid", [None, 1, ["rsa"], {"a": 1}, "", "rsa\0", "RSA", "r\u0073a ", "x" * 10_000])
def test_the_id_of_a_key_is_one_of_the_provider_as_it_is(tokens: WebTokens, kid: object) -> None:
    _, body, signature = signed().split(".")
    for header in ({"alg": "RS256", "kid": kid}, {"alg": "HS256", "kid": kid}, {"alg": "none", "kid": kid}):
        with pytest.raises(UnauthenticatedError):
            tokens.verify(f"{encoded(header)}.{body}.{signature}")
    with pytest.raises(UnauthenticatedError):
        tokens.verify(f"{encoded({'alg': 'RS256', 'kid': 'rsa', 'crit': ['b64'], 'b64': False})}.{body}.{signature}")


def test_keys_are_changed_while_the_service_runs(tokens: WebTokens, file: Path) -> None:
    with pytest.raises(UnauthenticatedError):
        tokens.verify(signed("other"))
    file.write_text(jwks("other"))
    assert tokens.verify(signed("other")) == "ann"
    with pytest.raises(UnauthenticatedError):
        tokens.verify(signed("rsa"))


def test_a_token_is_used_once_where_that_is_asked(file: Path) -> None:
    once = WebTokens(ISSUER, AUDIENCE, file, once=True)
    token = signed(jti="1")
    assert once.verify(token) == "ann"
    for again in (token, signed(jti="1"), signed()):
        with pytest.raises(UnauthenticatedError):
            once.verify(again)
    assert once.verify(signed(jti="2")) == "ann"


def test_a_token_that_is_used_once_lets_in_one_of_many_requests(file: Path, tmp_path: Path) -> None:
    """Requests with the same token of a lake share an answer of the gate; those with a web token must not."""
    with sample_lake(tmp_path) as lake:
        lake.access.create_user("ann")
        gate = AccessGate(lake, web=WebTokens(ISSUER, AUDIENCE, file, once=True))
        service, header = Service(gate, ServiceSettings(), Requests()), f"Bearer {signed(jti='one')}"

        async def enter_all() -> list[object]:
            asked = (service.enter_by({}, header, None, Role.READER) for _ in range(16))
            return await asyncio.gather(*asked, return_exceptions=True)

        found = asyncio.run(enter_all())
        service.close()
    refused = [each for each in found if isinstance(each, UnauthenticatedError)]
    assert len(refused) == 15, found


class _Provider(BaseHTTPRequestHandler):
    keys = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.keys.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[str]:
    _Provider.keys = jwks("rsa")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/jwks"
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_come_from_an_address(provider: str) -> None:
    tokens = WebTokens(ISSUER, AUDIENCE, provider)
    assert tokens.verify(signed()) == "ann"
    with pytest.raises(UnauthenticatedError):
        tokens.verify(signed("other"))


def test_a_provider_that_is_away_is_said_to_be(unused_port: int) -> None:
    with pytest.raises(ConnectorUnavailableError):
        WebTokens(ISSUER, AUDIENCE, f"http://127.0.0.1:{unused_port}/jwks").verify(signed())


@pytest.fixture
def unused_port() -> int:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Provider) as server:
        return int(server.server_port)


@pytest.mark.parametrize(
    "wrong",
    [
        {"algorithms": ("HS256",)},
        {"algorithms": ("none",)},
        {"algorithms": ()},
        {"issuer": ""},
        {"audience": ""},
        {"leeway": 1e9},
        {"keys": "http://id.example/jwks"},
        {"keys": "/nowhere/keys.json"},
    ],
)
def test_settings_that_let_anybody_in_are_refused(file: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        WebTokens(**{"issuer": ISSUER, "audience": AUDIENCE, "keys": file, **wrong})


def test_the_gate_lets_in_the_users_of_the_lake_only(tmp_path: Path, tokens: WebTokens) -> None:
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data")
    lake.access.create_user("ann", ["writer"])
    lake.access.create_user("gone")
    lake.access.disable_user("gone")
    gate = AccessGate(lake, web=tokens)
    identity = gate.enter(signed())
    assert (identity.principal, identity.role) == ("ann", Role.WRITER)
    assert gate.enter(lake.access.tokens.create("ann")).principal == "ann"
    for name in ("bob", "gone", "root", "ANN", "Ann", "aNN", " ann", "ann "):
        with pytest.raises(UnauthenticatedError):
            gate.enter(signed(sub=name))
    with pytest.raises(UnauthenticatedError):
        AccessGate(lake).enter(signed())
    gate.close()


def test_an_address_of_mail_is_one_in_any_letters(file: Path) -> None:
    by_mail = WebTokens(ISSUER, AUDIENCE, file, claim="email")
    assert by_mail.verify(signed(email="Ann@X.org", email_verified=True)) == "ann@x.org"


def test_a_web_token_opens_the_catalogs_that_have_its_user(tmp_path: Path, tokens: WebTokens) -> None:
    with quacklake.tenants(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data", create=True) as shared:
        shared.create_many(["acme", "beta", "coda"])
        for name in ("acme", "coda"):
            with shared.open(name) as lake:
                lake.access.create_user("ann", ["writer"])
        with shared.open("coda") as lake:
            lake.access.disable_user("ann")
        gate = AccessGate.of_tenants(shared, web=tokens)
        for name in ("beta", "coda", "nope", None):
            with pytest.raises(UnauthenticatedError):
                gate.enter(signed(), name)
        assert gate.enter(signed(), "AcMe").principal == "acme/ann"
        with pytest.raises(UnauthenticatedError):
            gate.enter(signed("other"), "acme")
        gate.check(signed())
        with pytest.raises(UnauthenticatedError):
            gate.check(signed(sub="bob"))
        gate.close()
