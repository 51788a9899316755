"""The oracle of removals finds every mistake that is planted."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import pytest

import quacklake
from quacklake.core.maintenance import cleanup
from quacklake.core.maintenance.backup import create, image
from quacklake.core.maintenance.backup.image import BackupInfo
from quacklake.core.storage import Store
from quacklake.core.tenancy.sharing import Occupancy
from tests.layout import folder
from tests.removal_oracle import watching

NOW = dt.timedelta(0)
ROWS = {"id": list(range(20))}


def test_a_cleanup_that_does_not_ask_who_names_a_file_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watching() as oracle, quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as lake:
        lake.create_table("a", ROWS)
        file = next((folder(tmp_path / "data") / "main/a").glob("*.parquet"))
        lake.table("a").overwrite(ROWS)
        lake.expire_snapshots(keep_last=1)
        lake.create_table("b", {"id": "BIGINT"}).add_files(str(file))
        with lake._context.catalog.commit() as writer:
            cleanup.file_names.schedule(writer, [(0, "main/a/" + file.name)], dt.datetime.now(dt.UTC))
        with monkeypatch.context() as patch:
            patch.setattr(cleanup, "named", lambda *_: set())
            with pytest.raises(AssertionError, match="data_file of sqlite"):
                lake.cleanup_old_files(older_than=NOW)
        assert file.exists()
        oracle.mistakes.clear()
        assert lake.cleanup_old_files(older_than=NOW).files == 0


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_purge_of_the_folder_of_another_is_caught(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/l.db" if database == "sqlite" else request.getfixturevalue("postgres_url")
    with watching() as oracle, quacklake.tenants(url, tmp_path / "data") as tenants:
        for name in ("acme", "beta"):
            with tenants.open(name, create=True) as lake:
                lake.create_table("t", ROWS)
        with tenants._tenancy.writing() as registry:
            registry._set(tenants.get("acme").id, folder="beta/", folder_key="beta/")
        tenants.drop("acme")
        monkeypatch.setattr(Occupancy, "is_free", lambda *_: True)
        with pytest.raises(AssertionError, match="data_file of"):
            tenants.purge(grace=NOW)
        oracle.mistakes.clear()
        with tenants.open("beta") as lake:
            assert lake.table("t").count() == 20


def test_a_prune_that_keeps_too_little_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "place"
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as lake:
        lake.create_table("t", ROWS)
        lake.backup(place)
    real = image.read_manifest

    def said(store: Store, id_: str) -> BackupInfo:
        return real(store, next(path.name for path in (place / "backups").iterdir() if path.name != "copy"))

    (found,) = quacklake.backups(place)
    shutil.copytree(place / "backups" / found.id, place / "backups" / "copy")
    monkeypatch.setattr(image, "read_manifest", said)
    monkeypatch.setattr(create, "_end", lambda *_: None)
    with watching() as oracle:
        with pytest.raises(AssertionError, match="a backup has it"):
            quacklake.prune_backups(place, keep_last=1)
        oracle.mistakes.clear()


def test_what_nobody_names_is_removed(tmp_path: Path) -> None:
    with watching() as oracle, quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as lake:
        lake.create_table("a", ROWS)
        lake.drop_table("a")
        lake.expire_snapshots(keep_last=1)
        assert lake.cleanup_old_files(older_than=NOW).files == 1
        assert oracle.asked > 0
