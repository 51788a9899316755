"""The servers of the tests. This folder is run before that of Spark, whose JVM bridge makes forking unsafe."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pymysql
import pytest
from pyarrow import fs

from services import SERVERS, USUAL, KafkaServer, MotoServer, PostgresServer, S3Server, Unavailable, jars, versity
from services.background import ensure, running, stop

pytestmark = pytest.mark.daily(0.7)

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_test_gets_an_empty_postgres_database(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert tables == (0,)
        assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)


def test_a_test_gets_an_empty_mysql_database(mysql_url: str) -> None:
    login, _, place = mysql_url.removeprefix("mysql://").partition("@")
    user, _, password = login.partition(":")
    address, _, database = place.partition("/")
    host, _, port = address.partition(":")
    connection = pymysql.connect(host=host, port=int(port), user=user, password=password, database=database)
    with connection, connection.cursor() as cursor:
        assert cursor.execute("SHOW TABLES") == 0


def test_a_test_gets_an_empty_bucket(s3_server: S3Server, s3_bucket: str) -> None:
    store = fs.S3FileSystem(
        access_key=s3_server.access_key,
        secret_key=s3_server.secret_key,
        scheme="http",
        endpoint_override=s3_server.host,
    )
    assert store.get_file_info(fs.FileSelector(s3_bucket.removeprefix("s3://"))) == []


@pytest.mark.parametrize("durable", [True, False])
def test_durability_is_a_choice(postgres_server: PostgresServer, durable: bool) -> None:
    with PostgresServer(durable=durable) as server, psycopg.connect(server.dsn()) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on" if durable else "off",)
        directory = server.directory
    assert not directory.exists()


@pytest.mark.parametrize("name", USUAL)
def test_a_server_ends_with_the_process_it_belongs_to(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(f"{name}_server")
    owner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        server = ensure(name, tmp_path, owner=owner.pid, durable=False)
        assert ensure(name, tmp_path).port == server.port
        assert server.ready()
    finally:
        owner.kill()
        owner.wait()
    _wait_until(lambda: running(name, tmp_path) is None)
    assert not server.ready()


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
@pytest.mark.parametrize("name", USUAL)
def test_a_server_ends_even_when_its_starter_is_killed(name: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(f"{name}_server")
    program = f"""
import time
from services import SERVERS
server = SERVERS[{name!r}](durable=False).start()
print(server.port, server.directory, flush=True)
time.sleep(600)
"""
    starter = subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    port, directory = starter.stdout.readline().split()
    starter.kill()
    starter.communicate()
    server = SERVERS[name].attached(int(port))
    _wait_until(lambda: not server.ready())
    # Its last children may still be removing files of their own.
    _wait_until(lambda: shutil.rmtree(directory, ignore_errors=True) or not Path(directory).exists())


def test_stopping_leaves_a_process_alone_that_only_has_the_same_pid(tmp_path: Path) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        (tmp_path / "s3.json").write_text(f'{{"name": "s3", "keeper": {bystander.pid}, "born": "1", "port": 1}}')
        assert not stop("s3", tmp_path)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_missing_part_is_unavailable_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.postgres._find_programs", lambda: None)
    with pytest.raises(Unavailable, match="PostgreSQL"):
        PostgresServer().start()


def test_a_machine_that_cannot_build_the_s3_server_says_so_in_a_sentence(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "services", "install"]
    without = {"XDG_CACHE_HOME": str(tmp_path), "GOPROXY": "off", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    done = subprocess.run(
        arguments, cwd=REPOSITORY, env=os.environ | without, capture_output=True, text=True, check=True, timeout=60
    )
    (told,) = done.stderr.splitlines()
    assert told.startswith("the tests of S3 use moto: ")


def test_without_the_s3_server_that_is_built_moto_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not S3Server().is_real
    built = tmp_path / "quacklake" / f"versitygw-{versity.VERSION}"
    built.parent.mkdir()
    built.touch()
    assert versity.install() == built
    assert S3Server().is_real and not MotoServer().is_real
    monkeypatch.setenv("QUACKLAKE_TEST_S3", "moto")
    assert not S3Server().is_real


def test_the_command_starts_reports_and_stops(tmp_path: Path, s3_server: S3Server) -> None:
    def run(command: str) -> str:
        arguments = [sys.executable, "-m", "services", command, "s3", "--directory", str(tmp_path)]
        arguments += ["--owner", str(os.getpid())]
        return subprocess.run(arguments, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()

    assert run("status") == "s3: not running"
    assert run("start").startswith("s3: http://127.0.0.1:")
    assert run("status").startswith("s3: http://127.0.0.1:")
    assert run("stop") == "s3: stopped"
    assert run("stop") == "s3: not running"


def test_a_keeper_that_is_killed_takes_its_server_along(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server = ensure("s3", tmp_path, owner=os.getpid())
    state = running("s3", tmp_path)
    assert state is not None
    os.kill(state.keeper, signal.SIGKILL)
    _wait_until(lambda: not server.ready())


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


def test_a_server_that_was_killed_comes_back_with_what_it_acknowledged(postgres_server: PostgresServer) -> None:
    with PostgresServer() as server:
        port = server.port
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS n")
            server.kill()
            assert not server.alive()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        server.revive()
        assert server.port == port
        with psycopg.connect(server.dsn()) as connection:
            assert connection.execute("SELECT n FROM t").fetchall() == [(1,)]


def test_jars_that_nobody_has_got_are_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match="the jars of kafka come from Maven: `make test-jars` gets them"):
        KafkaServer().start()


def test_jars_that_maven_does_not_have_are_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho ':: org.nowhere#nothing;1.0: not found'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(jars, "java", lambda: str(program))
    with pytest.raises(Unavailable, match=r"the jars of kafka could not be got from Maven: :: org\.nowhere#nothing"):
        jars.install("kafka")
    with pytest.raises(Unavailable, match="`make test-jars` gets them"):
        jars.jars("kafka")


def test_a_jar_that_is_another_file_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nfor word; do pattern=$word; done\necho other > ${pattern%/*}/made-1.jar\n")
    program.chmod(0o755)
    monkeypatch.setattr(jars, "java", lambda: str(program))
    monkeypatch.setitem(jars.SETS, "made", (jars.Jar("org.made", "made", "1", alone=True, sha256="0" * 64),))
    with pytest.raises(Unavailable, match=r"made-1\.jar from Maven is not the expected file"):
        jars.install("made")
    with pytest.raises(Unavailable, match="`make test-jars` gets them"):
        jars.jars("made")


@pytest.mark.skipif(sys.platform != "linux", reason="this system counts memory in another way")
def test_a_process_that_may_not_fork_starts_a_server() -> None:
    """The kernel refuses to copy a process with one range of memory larger than what the machine has."""
    code = """
import mmap, os
from services import NatsServer

half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 6 // 10
private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
parts = [mmap.mmap(-1, half, flags=private) for _ in range(2)]  # beside each other: one range
try:
    child = os.fork()
except OSError as error:
    print("fork:", error.errno)
else:
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
with NatsServer() as server:
    print("ready:", server.ready())
"""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert run.stdout.splitlines()[-1:] == ["ready: True"], run.stdout + run.stderr
