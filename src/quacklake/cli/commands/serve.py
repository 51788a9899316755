"""``quacklake serve``: let other programs use a lake over HTTP, as an Iceberg catalog, and by Flight SQL."""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from quacklake.cli.context import Context
from quacklake.cli.options import also, option, parse_assignments, setting_options
from quacklake.config import describe_settings, resolve_section
from quacklake.errors import ConfigError, MissingExtraError, NotFoundError
from quacklake.service.settings import SECTION, ServeSettings

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

    @also(setting_options(describe_settings(ServeSettings, SECTION)))
    def serve(
        self,
        context: Context,
        assigned: Annotated[
            list[str] | None, option("--set", "Any setting of the service, as NAME=VALUE.", "NAME=VALUE")
        ] = None,
        **options: Any,
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

        from quacklake.service import listening
        from quacklake.service.identity import Role

        if context.config.log_format == "json":  # for a program that collects them, not for a person at a terminal
            logging.getLogger("quacklake.service").setLevel(logging.INFO)
        given = {**options, **parse_assignments(assigned or ())}
        settings = resolve_section(ServeSettings, SECTION, given, config_file=context.options.config_file)
        if settings.tenants and self.opens_late:
            raise ConfigError("this lake has no tenants", hint="quacklake serve --tenants serves a shared lake")
        listening.check_place(settings.host, authenticated=settings.anonymous is None)
        doors = _open_doors(settings)
        with ExitStack() as stack:
            self.prepare(stack)
            taken = stack.enter_context(listening.listen(settings))
            url = listening.url_of(taken, settings, doors.tls)
            is_early = self.opens_late and not settings.users and settings.flight_port is None and doors.tls is None
            if is_early:  # nothing is left that can be wrong: requests wait until all is loaded
                stack.enter_context(_ended_by_signals())
                _tell(context, settings, url, None, doors.made)
            role = None if settings.anonymous is None else Role[settings.anonymous.upper()]
            operator = _operator(context, doors.operators) if settings.tenants else None
            if operator is not None:
                stack.callback(operator.close)
                gate = _tenant_gate(operator, settings, doors.web)
            elif settings.users:
                gate = self._open_users(context, doors.web)
            else:
                gate = self.open_gate(context, doors.tokens, role)
            stack.callback(gate.close)
            _run(context, settings, gate, taken, url, doors, is_early, operator, self.begin)


serve = ServedLake().serve


@dataclass(frozen=True)
class Doors:
    """The ways in, as the files of the settings have them, and the token that was ``made`` because there was none."""

    tokens: Mapping[str, Role]
    operators: list[str]
    web: WebTokens | None
    tls: Tls | None
    made: str | None = None


def _open_doors(settings: ServeSettings) -> Doors:
    """Read the files that say who gets in, and make a token where none does. Raise ``ConfigError``."""
    from quacklake.service import listening
    from quacklake.service.identity import Role

    found = Doors(
        _tokens(settings.tokens),
        [] if settings.operators is None else _lines(settings.operators),
        _web_tokens(settings),
        _tls(settings),
    )
    made = listening.new_token()
    if settings.tenants and not found.operators:
        return replace(found, operators=[made], made=made)
    if not (found.tokens or settings.anonymous or settings.users or settings.tenants):
        return replace(found, tokens={made: Role.ADMIN}, made=made)
    return found


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
    settings: ServeSettings,
    gate: Gate,
    taken: socket.socket,
    url: str,
    doors: Doors,
    is_told: bool,
    operator: Operator | None,
    begin: Callable[[], None],
) -> None:
    """Serve until the end. Say where the service is, unless that was told, and begin what remains."""
    from quacklake.service.appends import GroupCommits
    from quacklake.service.serving import serve as serve_until_the_end

    commits = GroupCommits(settings)
    beside = None if settings.flight_port is None else _flight(gate, settings, settings.flight_port, doors.tls, commits)

    def ready() -> None:
        if not is_told:
            where = None if beside is None else beside.location
            _tell(context, settings, url, where, doors.made, operates=operator is not None)
        begin()

    serve_until_the_end(_app(gate, settings, beside, commits, operator), settings, taken, ready, tls=doors.tls)


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


def _tls(settings: ServeSettings) -> Tls | None:
    from quacklake.service.listening import Tls

    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return Tls(settings.tls_certificate, settings.tls_key)


def _web_tokens(settings: ServeSettings) -> WebTokens | None:
    if settings.oidc_issuer is None or settings.oidc_audience is None or settings.oidc_keys is None:
        return None
    from quacklake.service.web_tokens import WebTokens

    return WebTokens(
        settings.oidc_issuer, settings.oidc_audience, settings.oidc_keys, claim=settings.oidc_claim or "sub"
    )


def _flight(gate: Gate, settings: ServiceSettings, port: int, tls: Tls | None, commits: GroupCommits) -> FlightService:
    from quacklake.service.flight import FlightService, FlightSettings

    files = {} if tls is None else {"certificate": Path(tls.certificate), "key": Path(tls.key)}
    own = FlightSettings.like(settings, host=settings.host, port=port, **files)
    return FlightService(gate, own, commits=commits).serve()


def _lines(file: str, hint: str = "write a token on each line") -> list[str]:
    """Return the lines of a file, without comments and empty ones. Raise ``ConfigError``, also if there are none."""
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
