"""Backups of ponds: incremental, verified, encrypted, restored into other databases; remotes and pushes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quacklake.config import resolve
from quacklake.errors import (
    AlreadyExistsError,
    CommitConflict,
    ConfigError,
    CorruptFileError,
    InputError,
    NotFoundError,
    QuacklakeError,
)
from quacklake.pond import Pond
from quacklake.pond.backup import BackupPlace, backup, pull, restore
from quacklake.pond.places import find
from quacklake.pond.pruning import prune
from quacklake.pond.queries import rows
from quacklake.pond.remotes import Remote, push_changes, put
from quacklake.pond.series import append_series
from services.s3 import S3Server
from tests.cli.conftest import Run
from tests.pond.conftest import readings

pytestmark = pytest.mark.daily(0.25)

KEY = "ab" * 32
BIG = os.urandom(200_000)


@pytest.fixture
def pond(tmp_path: Path, filled: Path) -> Iterator[Pond]:
    """A pond with a series, a small file and a large one."""
    shutil.copytree(filled, tmp_path / "P")
    with Pond.open(tmp_path / "P") as opened:
        yield opened


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("filled") / "P"
    with Pond.create(place) as opened:
        opened.run(["fill"], lambda fs: (append_series(fs, "/s", readings(500)), fs.write_file("/big", BIG)))
        opened.run(["fill"], lambda fs: fs.write_file("/small", b"small"))
    return place


def at(url: str | Path, **settings: str) -> BackupPlace:
    return BackupPlace(str(url), resolve(settings))


def check(pond: Pond, count: int = 500) -> None:
    assert (pond.fs().read("/big"), pond.fs().read("/small")) == (BIG, b"small")
    with rows(pond, "/s", "SELECT count(*) AS n, sum(temp) AS t FROM series") as found:
        assert found.read_all().to_pylist() == [{"n": count, "t": sum(range(count))}]


def test_a_backup_copies_what_is_new_and_restores_the_pond(pond: Pond, tmp_path: Path) -> None:
    place = at(tmp_path / "B")
    first = backup(pond, place)
    assert first.copied >= 1
    assert backup(pond, place).copied == 0
    pond.run(["more"], lambda fs: append_series(fs, "/s", readings(100, 500)))
    backup(pond, place)
    assert [each.txn_seq for each in place.backups()] == [3, 3, 4]
    with restore(place, find(tmp_path / "R")) as restored:
        check(restored, 600)
        assert [each.command for each in restored.control.transactions()] == ["pond init", "fill", "fill", "more"]
        restored.run(["after"], lambda fs: fs.make_directory("/new"))
    with restore(place, find(tmp_path / "old"), first.backup.id) as restored:
        check(restored)


def test_old_backups_go_with_the_files_that_only_they_have(pond: Pond, tmp_path: Path) -> None:
    """A large file that is gone from the pond goes with the last backup that has it, once it is a day old."""
    place = at(tmp_path / "B")
    with pytest.raises(InputError, match="which backups to keep"):
        prune(place)
    assert prune(place, keep_last=1).kept == ()
    pond.run(["more"], lambda fs: fs.write_file("/gone", b"G" * 100_000))
    first = backup(pond, place).backup
    pond.run(["less"], lambda fs: fs.remove("/gone"))
    pond.large_files.store.delete([str(pond.large_files.find(hashlib.sha256(b"G" * 100_000).hexdigest()))])
    second = backup(pond, place).backup
    would = prune(place, keep_last=1, dry_run=True)
    assert (would.backups, would.kept, len(place.backups())) == ((first,), (second,), 2)
    assert prune(place, older_than="1d").backups == ()
    assert prune(place, keep_last=1).backups == (first,)
    names = {sha256 for sha256, _ in place.large_files.stored()}
    assert len(names) == 2  # the list of the removed backup is young: another one might need its files
    old = time.time() - 3 * 86_400
    for path in (tmp_path / "B" / "lists").iterdir():
        os.utime(path, (old, old))
    assert prune(place, keep_last=1).files == 1
    assert {sha256 for sha256, _ in place.large_files.stored()} == {hashlib.sha256(BIG).hexdigest()}
    with restore(place, find(tmp_path / "R")) as restored:
        check(restored)
    with pytest.raises(NotFoundError):
        place.choose(first.id)


def test_an_encrypted_backup_shows_nothing_and_needs_its_key(pond: Pond, tmp_path: Path) -> None:
    place = at(tmp_path / "B", backup_key=KEY)
    backup(pond, place)
    assert backup(pond, place).copied == 0
    stored = [path for path in (tmp_path / "B").rglob("*") if path.is_file()]
    assert len(stored) > 10
    for path in stored:
        data = path.read_bytes()
        assert data.startswith(b"QLSEAL1\n")
        assert BIG[:64] not in data
        assert b"PAR1" not in data
    with restore(place, find(tmp_path / "R")) as restored:
        check(restored)
    for wrong in (at(tmp_path / "B"), at(tmp_path / "B", backup_key="cd" * 32)):
        with pytest.raises(QuacklakeError, match=r"key|decrypted|cannot be read"):
            restore(wrong, find(tmp_path / "none"))
    with pytest.raises(ConfigError, match="not 32 bytes"):
        at(tmp_path / "B", backup_key="secret").backups()


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
def test_a_damaged_file_of_a_backup_is_named_and_not_restored(pond: Pond, tmp_path: Path, key: str | None) -> None:
    settings = {} if key is None else {"backup_key": key}
    place = at(tmp_path / "B", **settings)
    backup(pond, place)
    kept = shutil.copytree(tmp_path / "B", tmp_path / "kept")
    for pattern in ("large/**/sha256=*", "data/data/**/*.parquet", "data/backups/*/ducklake_data_file.arrow"):
        path = next(iter(sorted((tmp_path / "B").glob(pattern))))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptFileError, match=r"changed|decrypted"):
            restore(place, find(tmp_path / f"R{len(pattern)}"))
        path.write_bytes((kept / path.relative_to(tmp_path / "B")).read_bytes())


def test_a_place_takes_one_pond_only(pond: Pond, tmp_path: Path) -> None:
    backup(pond, at(tmp_path / "B"))
    with (
        Pond.create(tmp_path / "other") as other,
        pytest.raises(AlreadyExistsError, match="pond backup already exists"),
    ):
        backup(other, at(tmp_path / "B"))
    with pytest.raises(AlreadyExistsError, match="Pond already exists"):
        restore(at(tmp_path / "B"), find(tmp_path / "other"))


def test_a_copy_pulls_what_is_new_and_loses_nothing_of_its_own(pond: Pond, tmp_path: Path) -> None:
    place = at(tmp_path / "B")
    backup(pond, place)
    with restore(place, find(tmp_path / "R")) as copy:
        assert pull(copy, place) is None
        pond.run(["more"], lambda fs: append_series(fs, "/s", readings(100, 500)))
        pond.run(["large"], lambda fs: fs.write_file("/more", BIG * 2))
        backup(pond, place)
        pulled = pull(copy, place)
        assert pulled is not None
        assert pulled.txn_seq == 5
        check(copy, 600)
        assert copy.fs().read("/more") == BIG * 2
        assert copy.control.transactions() == pond.control.transactions()
        copy.run(["own"], lambda fs: fs.make_directory("/own"))
        pond.run(["own"], lambda fs: fs.make_directory("/other"))
        backup(pond, place)
        with pytest.raises(CommitConflict, match="local and remote states are not equal, repair needed"):
            pull(copy, place)
        with pytest.raises(CommitConflict, match="local and remote states are not equal"):
            backup(copy, place)
        assert copy.fs().exists("/own")


@pytest.mark.parametrize("database", ["duckdb", "postgres", "mysql"])
def test_a_backup_on_s3_is_restored_into_another_database(
    pond: Pond,
    tmp_path: Path,
    s3_server: S3Server,
    s3_bucket: str,
    database: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    place = at(f"{s3_bucket}/backups", backup_key=KEY)
    backup(pond, place)
    if database == "duckdb":
        to = f"duckdb:///{tmp_path}/r.db?data_path={s3_bucket}/pond"
    elif database == "postgres":
        url = request.getfixturevalue("postgres_url")
        to = f"{url}{'&' if '?' in url else '?'}data_path={s3_bucket}/pond"
    else:
        url = request.getfixturevalue("mysql_url")
        to = str(tmp_path / "pond.yaml")
        Path(to).write_text(f"url: {url}\ndata_path: {s3_bucket}/pond\n")
    restore(place, find(to)).close()
    with Pond.open(to) as restored:
        check(restored)
        restored.run(
            ["after"], lambda fs: (append_series(fs, "/s", readings(5, 500)), fs.write_file("/b", BIG[:70_000]))
        )
        assert restored.fs().read("/b") == BIG[:70_000]


@pytest.fixture
def databases() -> Iterator[object]:
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield stack


# -- remotes -----------------------------------------------------------------------------------------------------------

_REMOTE = """apiVersion: pond/v1
kind: Remote
name: away
spec:
  url: {url}
  key: ${{env:AWAY_KEY}}
  auto_push: true
"""


def test_every_change_is_pushed_and_a_failed_push_does_not_fail_it(
    new: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("remote.yaml").write_text(_REMOTE.format(url=tmp_path / "away"))
    failed = new("apply", "-f", "remote.yaml")
    assert failed.code == 0
    assert "could not push to away" in failed.err
    assert "AWAY_KEY" in failed.err
    monkeypatch.setenv("AWAY_KEY", KEY)
    assert new("mkdir", "/a").err == ""
    place = at(tmp_path / "away", backup_key=KEY)
    assert place.choose().txn_seq == 3
    assert "up to date" in new("pull").out
    assert "transaction #003" in new("push", "away").out
    assert "post_push_failed" in new("sql", "SELECT record_kind FROM txns").out
    assert KEY not in new("cat", "/sys/remotes/away").out
    monkeypatch.setenv("POND", str(tmp_path / "restored"))
    Path("key").write_text(KEY)
    assert "restored transaction #003" in new("restore", str(tmp_path / "away"), "--key-file", "key").out
    assert new("backups", str(tmp_path / "away"), "--key-file", "key").out.count("2026") >= 1
    assert "/a" in new("list").out
    assert new("push", "nowhere").code != 0


def test_a_failed_push_is_a_line_of_a_json_log(new: Run, tmp_path: Path) -> None:
    """P53."""
    Path("remote.yaml").write_text(_REMOTE.format(url=tmp_path / "away"))
    failed = new("apply", "-f", "remote.yaml", "--log-format", "json")
    (line,) = map(json.loads, failed.err.splitlines())
    assert (failed.code, line["level"], line["code"], line["remote"]) == (0, "warning", "config", "away")
    assert "AWAY_KEY" in line["message"]


def test_a_secret_that_is_written_out_is_refused() -> None:
    with pytest.raises(ConfigError, match="key is a secret"):
        Remote.parse("x", {"url": "s3://b", "key": KEY})
    with pytest.raises(ConfigError, match="no option"):
        Remote.parse("x", {"url": "s3://b", "keys": "${env:A}"})


def test_a_push_that_cannot_reach_its_place_is_told_and_tried_again(pond: Pond, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    pond.run(["remote"], lambda fs: put(fs, Remote("r", str(tmp_path / "file" / "below"), {}, auto=True)))
    pond.on_commit = lambda changed, tree: sentences.extend(push_changes(changed, tree))
    sentences: list[str] = []
    pond.run(["change"], lambda fs: fs.make_directory("/d"))
    assert len(sentences) == 1
    assert pond.fs().exists("/d")
    (tmp_path / "file").unlink()
    pond.run(["change"], lambda fs: fs.make_directory("/e"))
    assert len(sentences) == 1
    assert at(tmp_path / "file" / "below").choose().txn_seq == pond.last_commit().txn_seq
