"""``quacklake serve``: let other programs use a lake over HTTP, as an Iceberg catalog, and by Flight SQL."""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from quacklake.cli.context import Context
from quacklake.cli.options import option
from quacklake.errors import ConfigError, MissingExtraError, NotFoundError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import ExitStack

    from fastapi import FastAPI

    from quacklake.lake import Lake
    from quacklake.service.appends import GroupCommits
    from quacklake.service.flight import FlightService
    from quacklake.service.identity import Gate, Role
    from quacklake.service.listening import Tls
    from quacklake.service.operators import Operator
    from quacklake.service.settings import ServiceSettings
    from quacklake.service.web_tokens import WebTokens


class ServedLake:
    """The lake that a command serves: that of ``quacklake serve`` is the one of the options and settings.

    A command of another package serves another lake: it is the method ``serve`` of a subclass that opens that lake.
    """

    opens_late: ClassVar[bool] = False
    """True for a lake that is opened when the service listens already; requests wait for it."""

    def prepare(self, stack: ExitStack) -> None:
        """Make what the lake needs before it is opened; the stack removes it at the end."""

    def open(self, context: Context) -> Lake:
        """Return the lake, open for writing."""
        return context.open(write=True)

    def open_gate(self, context: Context, tokens: Mapping[str, Role], anonymous: Role | None) -> Gate:
        """Return the gate for tokens with roles."""
        from quacklake.service.identity import TokenGate

        return TokenGate(self.open(context), tokens, anonymous=anonymous)

    def begin(self) -> None:
        """Begin what may only begin when the service answers."""

    def _open_users(self, context: Context, web: WebTokens | None) -> Gate:
        from quacklake.service.access_gate import AccessGate

        return AccessGate(self.open(context), web=web)

    def serve(
        self,
        context: Context,
        host: Annotated[str, option("--host", "The address to listen on.", "ADDRESS")] = "127.0.0.1",
        port: Annotated[int, option("--port -p", "The port to listen on; 0 for any free one.", "PORT")] = 8080,
        tokens: Annotated[
            str | None, option("--tokens", "A file with lines of a role (reader, writer, admin) and a token.", "FILE")
        ] = None,
        users: Annotated[bool, option("--users", "Let in the users of the lake, by tokens of lake.access.")] = False,
        oidc_issuer: Annotated[
            str | None, option("--oidc-issuer", "The provider whose tokens also let users in; with --users.", "URL")
        ] = None,
        oidc_audience: Annotated[str | None, option("--oidc-audience", "The audience of its tokens.", "NAME")] = None,
        oidc_keys: Annotated[str | None, option("--oidc-keys", "Its keys: a JWKS.", "URL|FILE")] = None,
        oidc_claim: Annotated[
            str | None, option("--oidc-claim", "The claim that names the user, by default sub.", "NAME")
        ] = None,
        anonymous: Annotated[
            Literal["reader", "writer", "admin"] | None,
            option("--anonymous", "The role of requests without a token, on this machine only.", "ROLE"),
        ] = None,
        flight: Annotated[int | None, option("--flight", "Also serve Flight SQL on a port; 0 for any.", "PORT")] = None,
        tls_certificate: Annotated[str | None, option("--tls-certificate", "A certificate, for https.", "FILE")] = None,
        tls_key: Annotated[str | None, option("--tls-key", "The key of the certificate.", "FILE")] = None,
        prefix: Annotated[str, option("--prefix", "The path before every route, as in /lake.", "PATH")] = "",
        max_body: Annotated[str, option("--max-body", "The most bytes of a request.", "SIZE")] = "64MiB",
        timeout: Annotated[str, option("--timeout", "The longest time of a statement.", "DURATION")] = "30s",
        no_web: Annotated[bool, option("--no-web", "Serve no dashboard.")] = False,
        backups: Annotated[
            str | None, option("--backups", "A folder or s3:// URL where admins may put backups.", "PLACE")
        ] = None,
        tenants: Annotated[bool, option("--tenants", "Serve every catalog of a shared lake to its users.")] = False,
        operators: Annotated[
            str | None,
            option("--operators", "A file of tokens that manage the tenants; one is made without it.", "FILE"),
        ] = None,
        cors: Annotated[
            list[str] | None, option("--cors", "An origin whose pages may call the service.", "ORIGIN")
        ] = None,
    ) -> None:
        """Without --tokens and --users, the command makes a token with the role admin and prints it.

        With --tenants, requests name their catalog (?lake=NAME), and the token that is printed is one of an operator,
        who makes, limits, renames and drops catalogs and their first administrators, and reads no rows.

        The API is described at /api/v1/openapi.json, and /iceberg is an Iceberg REST catalog. With --log-format json,
        every request is logged as a line. OTEL_EXPORTER_OTLP_ENDPOINT turns tracing on. The command ends on Ctrl-C or
        SIGTERM.
        """
        _check_installed()
        from contextlib import ExitStack

        from quacklake.config import parse_duration, parse_size
        from quacklake.service import listening
        from quacklake.service.identity import Role
        from quacklake.service.settings import ServiceSettings

        if context.config.log_format == "json":  # for a program that collects them, not for a person at a terminal
            logging.getLogger("quacklake.service").setLevel(logging.INFO)
        known = _tokens(tokens)
        web = _web_tokens(oidc_issuer, oidc_audience, oidc_keys, oidc_claim)
        _check_doors(users=users or tenants, others=bool(known) or anonymous is not None, web=web is not None)
        if operators is not None and not tenants:
            raise ConfigError("operators manage tenants", hint="pass --tenants, too")
        if tenants and (users or self.opens_late):
            raise ConfigError(
                "--tenants goes without --users", hint="it lets in the users of every catalog of a shared lake"
            )
        listening.check_place(host, authenticated=anonymous is None)
        tls = _tls(tls_certificate, tls_key)
        settings = ServiceSettings(
            host=host,
            port=port,
            prefix=prefix,
            web=not no_web,
            backups=backups or "",
            cors_origins=tuple(cors or ()),
            max_body=parse_size(max_body),
            statement_seconds=parse_duration(timeout).total_seconds(),
        )
        made = None
        managing = [] if operators is None else _lines(operators)
        if tenants and not managing:
            made = listening.new_token()
            managing = [made]
        elif not (known or anonymous or users or tenants):
            made = listening.new_token()
            known = {made: Role.ADMIN}
        with ExitStack() as stack:
            self.prepare(stack)
            taken = stack.enter_context(listening.listen(settings))
            url = listening.url_of(taken, settings, tls)
            is_early = self.opens_late and not users and flight is None and tls is None
            if is_early:  # nothing is left that can be wrong: requests wait until all is loaded
                stack.enter_context(_ended_by_signals())
                _tell(context, settings, url, None, made)
            role = None if anonymous is None else Role[anonymous.upper()]
            operator = _operator(context, managing) if tenants else None
            if operator is not None:
                stack.callback(operator.close)
                gate = _tenant_gate(operator, settings, web)
            else:
                gate = self._open_users(context, web) if users else self.open_gate(context, known, role)
            stack.callback(gate.close)
            place = None if flight is None else (host, flight)
            _run(context, settings, gate, taken, url, place, tls, made, is_early, operator, self.begin)


serve = ServedLake().serve


def _check_doors(*, users: bool, others: bool, web: bool) -> None:
    """Raise ``ConfigError`` for ways in that exclude each other."""
    if users and others:
        raise ConfigError("pass --users, or --tokens and --anonymous")
    if web and not users:
        raise ConfigError("tokens of a provider are for --users", hint="the lake says what each user may do")


_PACKAGES = ("argon2", "fastapi", "fastavro", "httptools", "prometheus_client", "uvicorn", "zstandard")


def _check_installed() -> None:
    """Raise ``MissingExtraError`` when a package of the service is missing, before anything is begun or loaded."""
    from importlib.util import find_spec

    missing = next((name for name in _PACKAGES if find_spec(name) is None), None)
    if missing is not None:
        raise MissingExtraError(f"the service needs the package {missing}", hint="pip install 'quacklake[service]'")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and Ctrl-C end a block as they end a service; for what is done before there is one."""

    def end(*_: object) -> None:
        raise SystemExit(0)

    before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _operator(context: Context, tokens: list[str]) -> Operator:
    from quacklake.lake.tenants import tenants
    from quacklake.service.operators import Operator

    options = context.options
    try:
        found = tenants(options.lake, options.data_path, create=False, config_file=options.config_file)
    except NotFoundError as error:
        error.hint = "quacklake tenant create NAME --data-path FOLDER makes one"
        raise
    return Operator(found, tokens)


def _tenant_gate(operator: Operator, settings: ServiceSettings, web: WebTokens | None) -> Gate:
    """Return the gate to all catalogs of a shared lake."""
    from quacklake.service.access_gate import AccessGate

    return AccessGate.of_tenants(
        operator.tenants, web=web, most=settings.open_tenants, idle_seconds=settings.tenant_idle_seconds
    )


def _app(
    gate: Gate,
    settings: ServiceSettings,
    beside: FlightService | None,
    commits: GroupCommits,
    operator: Operator | None,
) -> FastAPI:
    from fastapi import APIRouter

    from quacklake.service.app import create_app
    from quacklake.service.iceberg import iceberg_router
    from quacklake.service.tracing import configured

    router = APIRouter(prefix="/iceberg")
    router.include_router(iceberg_router(gate))
    at_end = (lambda: None) if beside is None else beside.shutdown
    return create_app(
        gate, settings, more=[router], at_end=at_end, tracing=configured(), commits=commits, operator=operator
    )


def _run(
    context: Context,
    settings: ServiceSettings,
    gate: Gate,
    taken: socket.socket,
    url: str,
    flight: tuple[str, int] | None,
    tls: Tls | None,
    token: str | None,
    is_told: bool,
    operator: Operator | None,
    begin: Callable[[], None],
) -> None:
    """Serve until the end. Say where the service is, unless that was told, and begin what remains."""
    from quacklake.service.appends import GroupCommits
    from quacklake.service.serving import serve as serve_until_the_end

    commits = GroupCommits(settings)
    beside = None if flight is None else _flight(gate, settings, *flight, tls, commits)

    def ready() -> None:
        if not is_told:
            where = None if beside is None else beside.location
            _tell(context, settings, url, where, token, operates=operator is not None)
        begin()

    serve_until_the_end(_app(gate, settings, beside, commits, operator), settings, taken, ready, tls=tls)


def _tell(
    context: Context,
    settings: ServiceSettings,
    url: str,
    flight: str | None,
    token: str | None,
    *,
    operates: bool = False,
) -> None:
    """Print where the service is, and the token that was made: for a lake, or for one who operates all."""
    facts = {"url": url, "iceberg": f"{url}/iceberg"}
    lines = [f"Quacklake serves {url}", f"Iceberg catalog: {url}/iceberg"]
    if flight is not None:
        facts["flight"] = flight
        lines.append(f"Flight SQL: {flight}")
    if settings.web:
        kind = "operator" if operates else "token"
        # a fragment is not sent: no log of a proxy will have the token
        facts["dashboard"] = f"{url}/ui/" if token is None else f"{url}/ui/#{kind}={token}"
        lines.append(f"Dashboard: {facts['dashboard']}")
    if token is not None:
        facts["token"] = token
        lines.append(f"Token: {token}")
    context.output.result("\n".join(lines), facts)
    sys.stdout.flush()


def _tls(certificate: str | None, key: str | None) -> Tls | None:
    from quacklake.service.listening import Tls

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError("pass both --tls-certificate and --tls-key, or neither")
    return Tls(certificate, key)


def _web_tokens(issuer: str | None, audience: str | None, keys: str | None, claim: str | None) -> WebTokens | None:
    if issuer is None and audience is None and keys is None and claim is None:
        return None
    if issuer is None or audience is None or keys is None:
        raise ConfigError("pass --oidc-issuer, --oidc-audience and --oidc-keys, or none of them")
    from quacklake.service.web_tokens import WebTokens

    return WebTokens(issuer, audience, keys, claim="sub" if claim is None else claim)


def _flight(
    gate: Gate, settings: ServiceSettings, host: str, port: int, tls: Tls | None, commits: GroupCommits
) -> FlightService:
    from quacklake.service.flight import FlightService, FlightSettings

    files = {} if tls is None else {"certificate": Path(tls.certificate), "key": Path(tls.key)}
    own = FlightSettings.like(settings, host=host, port=port, **files)
    return FlightService(gate, own, commits=commits).serve()


def _lines(file: str, hint: str = "write a token on each line") -> list[str]:
    """Return the lines of a file, without comments and empty ones. Raises ``ConfigError``, also if there are none."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from None
    found = [line for line in (line.partition("#")[0].strip() for line in text.splitlines()) if line]
    if not found:
        raise ConfigError(f"{file} has no tokens", hint=hint)
    return found


def _tokens(file: str | None) -> dict[str, Role]:
    from quacklake.service.listening import roles_of

    return {} if file is None else roles_of(_lines(file, "write lines such as: reader ql_…"))
