"""Ponds below a path of another pond: readable as if they were there, and never written to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from quacklake.config import resolve
from quacklake.errors import ConfigError, InputError, PathError, QuacklakeError, ReadOnlyError
from quacklake.pond import FS, Pond
from quacklake.pond.backup import BackupPlace, backup
from quacklake.pond.queries import everything, rows
from quacklake.pond.series import append_series
from services.s3 import S3Server
from tests.cli.conftest import Run
from tests.pond.conftest import readings

pytestmark = pytest.mark.daily(0.35)

BIG = os.urandom(100_000)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    """A pond to mount."""
    with Pond.create(tmp_path_factory.mktemp("other") / "O") as pond:

        def fill(fs: object) -> None:
            assert hasattr(fs, "make_directory")
            fs.make_directory("/site/inner", parents=True)
            append_series(fs, "/site/dock.series", readings(200))  # type: ignore[arg-type]
            fs.write_file("/site/big", BIG)  # type: ignore[attr-defined]
            fs.write_file("/site/inner/small", b"small")  # type: ignore[attr-defined]
            fs.make_link("/site/link", "inner/small")  # type: ignore[attr-defined]
            fs.make_link("/site/broken", "nowhere")  # type: ignore[attr-defined]

        pond.run(["fill"], fill)
        yield pond


@pytest.fixture
def pond(tmp_path: Path, template: Path) -> Iterator[Pond]:
    with Pond.open(shutil.copytree(template, tmp_path / "P")) as opened:
        yield opened


def place_of(pond: Pond) -> str:
    return str(Path(pond.lake.data_path).parent.parent)


def check(pond: Pond) -> None:
    fs = pond.fs()
    paths = [each.path for each in fs.glob("**/*")]
    assert paths == [
        "/m",
        "/m/big",
        "/m/dock.series",
        "/m/inner",
        "/m/inner/small",
        "/m/link",
    ]
    assert (fs.read("/m/big"), fs.read("/m/inner/small"), fs.read("/m/link")) == (BIG, b"small", b"small")
    with rows(pond, "/m/dock.series", "SELECT count(*) AS n, max(temp) AS t FROM source") as found:
        assert found.read_all().to_pylist() == [{"n": 200, "t": 199.0}]
    with everything(pond) as relations:
        assert relations.query('SELECT count(*) AS n FROM "/m/dock.series"').read_all().to_pylist() == [{"n": 200}]


def test_a_pond_appears_below_a_path(pond: Pond, other: Pond) -> None:
    pond.run(["mount"], lambda fs: fs.make_node("/m", "mount", {"pond": place_of(other), "path": "/site"}))
    check(pond)
    assert [each.node.version for each in pond.fs().glob("/m/*.series")] == [1]


def test_what_a_mounted_pond_computes_is_computed_here(pond: Pond, tmp_path: Path) -> None:
    """Also in directories it computes, and in a pond that is mounted in it; a query reads nothing of this machine."""

    def fill(fs: FS) -> None:
        append_series(fs, "/dock.series", readings(200))
        fs.make_node("/warm", "sql-derived-series", derived("SELECT timestamp, temp + 100 AS warm FROM source"))
        fs.make_node("/leak", "sql-derived-table", derived("SELECT content FROM read_text('/etc/hostname')"))
        reduced = {"in_pattern": "/dock.series", "out_pattern": "dock", "time_column": "timestamp"}
        fs.make_node(
            "/less", "temporal-reduce", {**reduced, "resolutions": ["1h"], "aggregations": [{"type": "count"}]}
        )

    with Pond.create(tmp_path / "O") as other:
        other.run(["fill"], fill)
        before = other.lake.current_snapshot()
        with Pond.create(tmp_path / "N") as near:
            near.run(["mount"], lambda fs: fs.make_node("/far", "mount", {"pond": str(tmp_path / "O")}))
        pond.run(["mount"], lambda fs: fs.make_node("/m", "mount", {"pond": str(tmp_path / "O")}))
        pond.run(["mount"], lambda fs: fs.make_node("/n", "mount", {"pond": str(tmp_path / "N"), "path": "/far"}))
        for above in ("/m", "/n"):
            assert {f"{above}/warm", f"{above}/less/dock/res=1h.series"} <= {
                each.path for each in pond.fs().glob(f"{above}/**/*")
            }
            with rows(pond, f"{above}/warm", "SELECT count(*) AS n, max(warm) AS m FROM source") as found:
                assert found.read_all().to_pylist() == [{"n": 200, "m": 299.0}]
            with rows(pond, f"{above}/less/dock/res=1h.series") as found:
                assert [row["temp.count"] for row in found.read_all().to_pylist()] == [60, 60, 60, 20]
            with everything(pond, sql=f'FROM "{above}/warm"') as relations:
                assert relations.query(f'SELECT min(warm) AS m FROM "{above}/warm"').read_all().to_pylist() == [
                    {"m": 100.0}
                ]
            with pytest.raises(InputError, match="read_text"), rows(pond, f"{above}/leak"):
                pass
        assert other.lake.current_snapshot() == before


def test_a_pond_that_is_open_for_reading_only_computes(tmp_path: Path) -> None:
    with Pond.create(tmp_path / "O") as other:
        other.run(["fill"], lambda fs: append_series(fs, "/dock.series", readings(20)))
        other.run(["make"], lambda fs: fs.make_node("/t", "sql-derived-series", derived("SELECT * FROM source")))
    with Pond.open(tmp_path / "O", read_only=True) as opened:
        before = opened.lake.current_snapshot()
        with rows(opened, "/t", "SELECT count(*) AS n FROM series") as found:
            assert found.read_all().to_pylist() == [{"n": 20}]
        assert opened.lake.current_snapshot() == before


def derived(query: str) -> dict[str, object]:
    return {"patterns": {"source": "/dock.series"}, "query": query}


def test_nothing_is_written_through_a_mount_and_no_path_leaves_it(pond: Pond, other: Pond) -> None:
    pond.run(["mount"], lambda fs: fs.make_node("/m", "mount", {"pond": place_of(other), "path": "/site"}))
    before = other.lake.current_snapshot()
    for work in (
        lambda fs: fs.write_file("/m/new", b"x"),
        lambda fs: fs.write_file("/m/inner/new", b"x"),
        lambda fs: fs.make_directory("/m/d"),
        lambda fs: fs.remove("/m/big"),
        lambda fs: fs.move("/m/big", "/big"),
        lambda fs: append_series(fs, "/m/dock.series", readings(1, 900)),
    ):
        with pytest.raises(QuacklakeError):
            pond.run(["write"], work)
    with pytest.raises(ReadOnlyError):
        pond.run(["write"], lambda fs: fs.write_file("/m/new", b"x"))
    assert other.lake.current_snapshot() == before
    assert not pond.fs().exists("/m/../site")
    with pytest.raises(PathError):
        pond.fs().get("/m/../../site")
    for config in ({"pond": "x", "path": "../up"}, {"pond": "x", "backup": "y"}, {}, {"ponds": "x"}):
        with pytest.raises(ConfigError):
            pond.run(["mount"], lambda fs, c=config: fs.make_node("/bad", "mount", c))
    with pytest.raises(ConfigError, match="not a factory for nodes of your own"):
        pond.run(["mount"], lambda fs: fs.make_node("/bad", "mount-file", {}))


def test_a_mount_that_cannot_be_opened_hides_nothing_else(pond: Pond, tmp_path: Path) -> None:
    def work(fs: object) -> None:
        fs.make_node("/gone", "mount", {"pond": str(tmp_path / "gone")})  # type: ignore[attr-defined]
        fs.make_node("/self", "mount", {"pond": str(tmp_path / "P")})  # type: ignore[attr-defined]
        fs.make_directory("/there")  # type: ignore[attr-defined]

    pond.run(["mount"], work)
    assert {"/gone", "/there"} <= {each.path for each in pond.fs().glob("*")}
    with pytest.raises(QuacklakeError, match="Pond does not exist"):
        pond.fs().get("/gone/a")
    assert [each.path for each in pond.fs().glob("**/there")] == ["/self/there", "/there"]


def test_a_backup_on_s3_is_mounted_where_it_is(
    pond: Pond, other: Pond, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    backup(other, BackupPlace(f"{s3_bucket}/o", resolve({})))
    pond.run(["mount"], lambda fs: fs.make_node("/m", "mount", {"backup": f"{s3_bucket}/o", "path": "/site"}))
    check(pond)


def test_commands_read_through_a_mount(new: Run, other: Pond, tmp_path: Path) -> None:
    Path("m.yaml").write_text(
        "kind: Factory\nname: m\nspec:\n  path: /m\n  factory: mount\n"
        f"  config: {{pond: {place_of(other)}, path: /site}}\n"
    )
    assert new("apply", "-f", "m.yaml").code == 0
    assert "/m/dock.series" in new("list").out
    assert "200 total rows" in new("cat", "/m/dock.series", "--limit", "3").out
    assert "mount-series" in new("describe", "/m/dock.series").out
    assert new("copy", "/m/dock.series", f"host://{tmp_path}/out.csv").code == 0
    assert len(Path(tmp_path, "out.csv").read_text().splitlines()) == 201
    assert "mount-file" not in new("list-factories").out
    assert new("rm", "/m/big").code != 0
    assert "no problem" in new("verify").out


def test_a_mount_in_a_mounted_pond_is_followed_but_never_in_a_circle(
    pond: Pond, other: Pond, tmp_path: Path, template: Path
) -> None:
    """pond → middle → other; the middle mounts the pond, which mounts it, and a pond that is gone."""
    with Pond.open(shutil.copytree(template, tmp_path / "middle")) as middle:

        def fill(fs: FS) -> None:
            fs.make_node("/deep", "mount", {"pond": place_of(other), "path": "/site"})
            fs.make_node("/back", "mount", {"pond": str(tmp_path / "P")})
            fs.make_node("/gone", "mount", {"pond": str(tmp_path / "gone")})
            fs.write_file("/own", b"mine")

        middle.run(["fill"], fill)
    pond.run(["mount"], lambda fs: fs.make_node("/m", "mount", {"pond": str(tmp_path / "middle")}))
    fs = pond.fs()
    paths = [each.path for each in fs.glob("**/*")]
    assert {"/m/own", "/m/deep/big", "/m/deep/dock.series", "/m/deep/inner/small", "/m/back"} <= set(paths)
    assert not any(path.startswith("/m/back/m/back") for path in paths)
    assert (fs.read("/m/deep/big"), fs.read("/m/deep/inner/small"), fs.read("/m/own")) == (BIG, b"small", b"mine")
    with rows(pond, "/m/deep/dock.series", "SELECT count(*) AS n, max(temp) AS t FROM source") as found:
        assert found.read_all().to_pylist() == [{"n": 200, "t": 199.0}]
    with everything(pond) as relations:
        query = 'SELECT count(*) AS n FROM "/m/deep/dock.series"'
        assert relations.query(query).read_all().to_pylist() == [{"n": 200}]
    with pytest.raises(QuacklakeError):
        pond.run(["write"], lambda fs: fs.write_file("/m/deep/new", b"x"))


def test_the_key_of_a_mounted_backup_is_a_reference(pond: Pond) -> None:
    with pytest.raises(ConfigError, match="key is a secret"):
        pond.run(["mount"], lambda fs: fs.make_node("/m", "mount", {"backup": "b", "key": "ab" * 32}))
