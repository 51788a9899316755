"""Real servers for the tests, started at most once per run, and the Hypothesis profiles.

The first test that needs a server starts it for the whole run: all xdist workers find it through a state file in the
run's temporary directory. It ends with the main process, even when that is killed.
"""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar, cast

import duckdb
import hypothesis.core
import pytest
from hypothesis import HealthCheck, settings

from quacklake.errors import MissingExtraError
from services import (
    SERVERS,
    DatabaseServer,
    MotoServer,
    MySQLServer,
    NatsServer,
    PostgresServer,
    S3Server,
    Server,
    Unavailable,
)
from services.background import ensure, stop
from services.browser import Browser, find_browser
from tests import resuming, sampling, scheduling, scratch, seeds
from tests.catalog.stock import Stock
from tests.duckdbs import needs_extensions
from tests.layout import CATALOG, LAYOUT

scratch.use()
# For the processes that this one starts, such as the workers of a run. Otherwise glibc soon takes large blocks from its
# heap, too, which then grows by gigabytes that nobody uses, until the kernel refuses to fork the process.
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(1 << 20))
pytest.register_assert_rewrite("tests.conformance.history", "tests.conformance.statistics")

# The examples of Hypothesis are those of the seed too, so that the same run finds the same failure.
hypothesis.core.global_force_seed = seeds.SEED
settings.register_profile("default", deadline=None, database=None, derandomize=False, print_blob=True)
settings.register_profile("ci", settings.get_profile("default"), suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") == "true" else "default"))

collect_ignore = ["tenants"] if LAYOUT == "shared" else []
"""They say of each lake which layout it has."""

MARKED = ("postgres", "mysql", "s3", "moto", "nats")
"""The servers that have a mark."""

AnyServer = TypeVar("AnyServer", bound=Server)

_MAIN_PROCESS = pytest.StashKey[int]()
_PROGRESS = resuming.Progress.from_environment()
_NOT_PASSED: set[str] = set()
_SAMPLED = pytest.StashKey[sampling.Counts]()


def pytest_report_header() -> list[str]:
    return [sampling.headline(), f"duckdb {duckdb.__version__}"]


def pytest_configure(config: pytest.Config) -> None:
    if LAYOUT == "shared":
        # every lake that a test makes is then a catalog of a shared one
        os.environ["QUACKLAKE_CATALOG"] = CATALOG
    config.stash[_SAMPLED] = {}
    worker = getattr(config, "workerinput", None)
    config.stash[_MAIN_PROCESS] = os.getpid() if worker is None else worker["main_process"]
    if worker is None and _PROGRESS is not None:
        _PROGRESS.begin()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are found and stay: looking for garbage among them takes seconds, then and ever after."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Tell an xdist worker which process the servers belong to."""
    node.workerinput["main_process"] = os.getpid()  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Hand out the tests in units that share what they make; see ``scheduling``."""
    return scheduling.scheduler(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that uses a server before ``-m`` selects, so that ``-m "not postgres"`` leaves it out.

    It does when it has the server's fixture, or a parameter that is the name of the server.
    """
    fixtures = getattr(item, "fixturenames", ())
    values = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    named = {value for value in values if isinstance(value, str)}
    for name in MARKED:
        if f"{name}_server" in fixtures or name in named:
            item.add_marker(name)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the tests of this run: those that are left of an interrupted one, of its shard and its sample."""
    _leave_out_passed(config, items)
    config.stash[_SAMPLED].update(sampling.take(config, items))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: scheduling.rank(item.nodeid))


def _leave_out_passed(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove tests of other shards, and those that ended well before an interruption."""
    shard = resuming.parse_shard(os.environ.get(resuming.SHARD))
    passed = set() if _PROGRESS is None else _PROGRESS.read()
    rest = [item for item in items if item.nodeid not in passed and resuming.in_shard(item.nodeid, shard)]
    if len(rest) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(rest)])
        items[:] = rest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that passed; the main process hears of all tests."""
    if not report.passed:
        _NOT_PASSED.add(report.nodeid)
    elif _PROGRESS is not None and report.when == "teardown" and "PYTEST_XDIST_WORKER" not in os.environ:
        _PROGRESS.add({report.nodeid} - _NOT_PASSED)


@contextmanager
def _encrypting() -> Iterator[None]:
    """Skip a test that writes an encrypted lake, where DuckDB has no extension for that."""
    try:
        yield
    except MissingExtraError as error:
        if "httpfs" in error.message:
            needs_extensions()
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    with _encrypting():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    with _encrypting():
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take note of what an xdist worker sampled."""
    config: pytest.Config = node.config  # type: ignore[attr-defined]
    config.stash[_SAMPLED].update(getattr(node, "workeroutput", {}).get("sampled", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(sampling.summary(config.stash[_SAMPLED] | seeds.SAMPLED))
    failed = [report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, ())]
    for line in sampling.repeat(failed):
        terminalreporter.write_line(line, red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the share that the run took as its last line."""
    if not hasattr(config, "workerinput") and _SAMPLED in config.stash and config.stash[_SAMPLED]:
        print(sampling.last_line(config.stash[_SAMPLED]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        session.config.workeroutput["sampled"] = session.config.stash[_SAMPLED] | seeds.SAMPLED  # type: ignore[attr-defined]
        return
    if _PROGRESS is not None and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # all of them passed before
    factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    for name in SERVERS:
        stop(name, factory.getbasetemp() / "services")


def _server(name: str, request: pytest.FixtureRequest) -> Server:
    factory = cast(pytest.TempPathFactory, request.getfixturevalue("tmp_path_factory"))
    base = factory.getbasetemp()
    directory = (base.parent if hasattr(request.config, "workerinput") else base) / "services"
    try:
        return ensure(name, directory, owner=request.config.stash[_MAIN_PROCESS], durable=False)
    except Unavailable as error:
        skip_or_fail(str(error))


def skip_or_fail(reason: str) -> NoReturn:
    """Skip a test that cannot run on this machine; where nothing may be skipped, it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} (CI=true: nothing may be skipped)", pytrace=False)
    pytest.skip(reason)


@contextmanager
def started(server: AnyServer) -> Iterator[AnyServer]:
    """Start a separate server for a block; skip the test if it cannot run."""
    try:
        server.start()
    except Unavailable as error:
        skip_or_fail(str(error))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> PostgresServer:
    """A PostgreSQL server that all tests share."""
    return cast(PostgresServer, _server("postgres", request))


@pytest.fixture(scope="session")
def mysql_server(request: pytest.FixtureRequest) -> MySQLServer:
    """A MariaDB server that all tests share."""
    return cast(MySQLServer, _server("mysql", request))


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest) -> S3Server:
    """An S3 server that all tests share: versitygw, or moto if that was not built."""
    return cast(S3Server, _server("s3", request))


@pytest.fixture(scope="session")
def moto_server(request: pytest.FixtureRequest) -> MotoServer:
    """The S3 server that keeps all in memory and asks for no keys."""
    return cast(MotoServer, _server("moto", request))


@pytest.fixture(scope="session")
def nats_server(request: pytest.FixtureRequest) -> NatsServer:
    """A NATS server with JetStream that all tests share."""
    return cast(NatsServer, _server("nats", request))


@pytest.fixture(scope="session")
def stock() -> Iterator[Stock]:
    """Stock DuckDB, in a separate process."""
    with Stock() as opened:
        yield opened


@pytest.fixture(scope="session")
def stock_if_plain(request: pytest.FixtureRequest) -> Stock | None:
    """Stock DuckDB for a last look at a lake, None where it cannot open the lakes."""
    return None if LAYOUT == "shared" else cast(Stock, request.getfixturevalue("stock"))


@pytest.fixture
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Gives the URL of a place for a new lake on a kind of database."""

    def make(database: str) -> str:
        if database in ("sqlite", "duckdb"):
            return f"{database}:///{tmp_path / f'{uuid.uuid4().hex}.db'}"
        server: DatabaseServer = request.getfixturevalue(f"{database}_server")
        return databases.enter_context(server.new_database())

    with ExitStack() as databases:
        yield make


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a PostgreSQL database of the test's own."""
    with postgres_server.new_database() as url:
        yield url


@pytest.fixture
def mysql_url(mysql_server: MySQLServer) -> Iterator[str]:
    """The URL of a MariaDB database of the test's own."""
    with mysql_server.new_database() as url:
        yield url


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """The ``s3://`` URL of a bucket of the test's own."""
    return s3_server.create_bucket(f"t-{uuid.uuid4().hex}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real browser, with one page of the size of a small screen."""
    program = find_browser()
    if program is None:
        pytest.skip("no browser: `make setup` installs chromium-headless-shell where it can")
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    opened.size(1280, 800)
    yield opened
    opened.close()
