"""Pruning never drops a file with a matching row, in any database, with plain DuckDB as the judge."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import quacklake
from quacklake import Lake
from quacklake.core.catalog.reading import known_bounds
from quacklake.core.scan.planner import to_predicate
from quacklake.errors import QuacklakeError
from services import DatabaseServer
from tests.conformance.conftest import kinds
from tests.scan.pruning import FILES, POOLS, filters, judge, tables
from tests.seeds import LONG, SEED, some

DATABASES = some(("sqlite", "duckdb", "postgres", "mysql"), 2, "databases of pruning", always=("sqlite",))
#: The seed of the rows; with these some files match no filter of a kind, and with others that may be by chance.
KNOWN = 1
ROWS = SEED if LONG else KNOWN


def examples(count: int) -> settings:
    """Ten times as many in the long profile, on other rows each time."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=count * 10 if LONG else count, suppress_health_check=checks)


class Pruned:
    """The lake, plain DuckDB with the same rows, and the id of each file."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.seed = seed
        self.batches = tables(seed)
        self.lake: Lake = quacklake.connect(url, data_path=folder / "data", data_inlining_row_limit=0)
        table = self.lake.create_table("t", self.batches[0].schema)
        for batch in self.batches:
            table.append(batch)
        self.table = table
        # the same tables without a memory: the database itself compares the bounds
        self.other: Lake = quacklake.connect(url, plan_cache_bytes=0)
        self.ids = table.files().column("data_file_id").to_pylist()
        assert len(self.ids) == FILES
        self.truth = judge(self.batches)

    def __repr__(self) -> str:
        return f"Pruned(seed={self.seed})"

    def close(self) -> None:
        self.truth.close()
        self.other.close()
        self.lake.close()

    def matching(self, where: str) -> set[int] | None:
        """The files with a matching row, or None when DuckDB refuses the filter."""
        try:
            rows = self.truth.execute(f"SELECT DISTINCT file FROM truth WHERE {where}").fetchall()
        except duckdb.Error:
            return None
        return {self.ids[row[0]] for row in rows}

    def planned(self, where: str | pc.Expression, *, by_database: bool = False) -> set[int]:
        """The files that remembered bounds leave, or those that the database leaves."""
        table = self.other.table("t") if by_database else self.table
        return set(table.plan(where).files.column("data_file_id").to_pylist())


@pytest.fixture(autouse=True, scope="module")
def remembered_from_the_first_file_on() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_bounds, "LEAST", 0)
        yield


@pytest.fixture(scope="module", params=kinds(*DATABASES))
def pruned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pruned]:
    folder = tmp_path_factory.mktemp("pruning")
    if request.param in ("sqlite", "duckdb"):
        made = Pruned(f"{request.param}:///{folder / 'lake.db'}", folder, seed=ROWS)
        yield made
        made.close()
        return
    server: DatabaseServer = request.getfixturevalue(f"{request.param}_server")
    with server.new_database() as url:
        made = Pruned(url, folder, seed=ROWS)
        yield made
        made.close()


@pytest.fixture(scope="module")
def known(pruned: Pruned, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pruned]:
    """A lake with the known rows."""
    if pruned.seed == KNOWN:
        yield pruned
        return
    folder = tmp_path_factory.mktemp("known")
    made = Pruned(f"sqlite:///{folder / 'lake.db'}", folder, seed=KNOWN)
    yield made
    made.close()


@examples(40)
@given(where=filters())
def test_every_file_with_a_matching_row_is_planned(pruned: Pruned, where: str) -> None:
    expected = pruned.matching(where)
    assume(expected is not None)
    assert expected is not None
    assert expected <= pruned.planned(where)
    assert expected <= pruned.planned(where, by_database=True)


@examples(25)
@given(where=filters())
def test_a_filter_finds_exactly_the_rows_that_duckdb_finds(pruned: Pruned, where: str) -> None:
    # DuckDB 1.5.5 itself finds no NULL with "x = 1 OR x IS DISTINCT FROM 1" where it knows that all are NULL
    assume("DISTINCT" not in where)
    try:
        [(expected,)] = pruned.truth.execute(f"SELECT count(*) FROM truth WHERE {where}").fetchall()
    except duckdb.Error:
        with pytest.raises(QuacklakeError):
            pruned.table.count(where)
    else:
        assert pruned.table.count(where) == expected


@pytest.mark.parametrize("column", sorted(set(POOLS) - {"b", "bin", "t"}))
def test_pruning_does_leave_files_out(known: Pruned, column: str) -> None:
    """A pruner that keeps everything would pass the tests above."""
    smallest = {
        "s": "s < 'A'",
        "d": "d > DATE '9000-01-01' OR d < DATE '0001-01-01'",
        "ts": "ts = TIMESTAMP '2023-11-14 22:13:20.1'",
        "tz": "tz = TIMESTAMPTZ '2023-11-14 22:13:20.1+00'",
        "ns": "ns > '2023-01-01 00:00:00'",
        "sec": "sec < '1970-01-01 00:00:00'",
        "f32": "f32 < -1e20",
        "d38": "d38 > 1000",
    }.get(column, f"{column} < 0" if column != "u64" else "u64 < 9")
    try:
        predicate = to_predicate(smallest, known.table.info.schema)
    except QuacklakeError:
        pytest.fail(f"{smallest} is a filter")
    expected = known.matching(smallest)
    assert expected is not None
    if column == "f32":
        assert known.planned(smallest) >= expected  # its bounds are not exact
    else:
        assert expected <= known.planned(smallest) < set(known.ids), predicate


# -- Arrow expressions ---------------------------------------------------------------------------------------------------

_OPERATORS = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<>": lambda a, b: a != b,
}
_ARROW = ("i8", "i64", "f64", "s", "d18", "d", "ts", "tz")


@st.composite
def _comparisons(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from(_ARROW))
    type_, pool = POOLS[name]
    field = pc.field(name)
    kind = draw(st.sampled_from(["compare", "flipped", "in", "null", "not"]))
    value = draw(st.sampled_from(list(pool)))
    scalar = pa.scalar(value, pa.int32() if name == "d" else pa.int64() if name in ("ts", "tz") else type_).cast(type_)
    operator = _OPERATORS[draw(st.sampled_from(sorted(_OPERATORS)))]
    if kind == "compare":
        return operator(field, pc.scalar(scalar))
    if kind == "flipped":
        return operator(pc.scalar(scalar), field)
    if kind == "in":
        return field.isin(
            pa.array([scalar.as_py()], type_) if name not in ("d", "ts", "tz") else pa.array([None], type_)
        )
    return field.is_null() if kind == "null" else ~operator(field, pc.scalar(scalar))


def _expressions() -> st.SearchStrategy[pc.Expression]:
    return st.recursive(
        _comparisons(),
        lambda parts: st.builds(lambda one, two, both: one & two if both else one | two, parts, parts, st.booleans()),
        max_leaves=4,
    )


@examples(40)
@given(expression=_expressions())
def test_every_file_that_matches_an_arrow_expression_is_planned(pruned: Pruned, expression: pc.Expression) -> None:
    try:
        expected = {
            id_ for id_, batch in zip(pruned.ids, pruned.batches, strict=True) if batch.filter(expression).num_rows
        }
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        assume(False)
    assert expected <= pruned.planned(expression)


# -- damaged statistics --------------------------------------------------------------------------------------------------

_JUNK = {
    "i64": ["", "-", "--5", "5-3", "abc", "nan", "0x10", " 5", "5 ", "1e", "NULL", "٣", "\x00" * 0 + "∞"],
    "f64": ["", "-", "--1.5", "1-2", "1.2.3", ".", "e", "1e", "e5", "abc", "nan", "NaN", "1,5", "0x1p3"],
    "d18": ["", "-", ".", "1.2.3", "abc", "1-2", "NaN"],
    "d": ["", "yesterday", "2024", "24-01-01", "infinity", "-infinity", "0044-03-15 (BC)", "12024-01-01", "abcd-ef-gh"],
    "ts": [
        "",
        "now",
        "2024-01-01",
        "infinity",
        "12024-01-01 00:00:00",
        "0044-03-15 (BC) 00:00:00",
        "noon-on-th 00:00:00",
    ],
    "tz": ["", "now", "infinity", "-infinity", "0044-03-15 (BC) 00:00:00+00"],
}


@pytest.mark.parametrize("column", sorted(_JUNK))
def test_statistics_that_cannot_be_read_never_leave_a_file_out(pruned: Pruned, column: str) -> None:
    """Each file has bounds of another kind, and no filter may leave any of them out."""
    assert len(_JUNK[column]) <= FILES
    catalog = pruned.lake._context.catalog
    table = catalog._tables["file_column_stats"]
    id_ = pruned.table.info.schema.find(column).id
    wanted = [
        f"{column} {operator} {value}"
        for value in {
            "i64": ("-5", "0", "7", "5000"),
            "f64": ("-2.5", "0", "7.25", "1e9"),
            "d18": ("-5", "0", "7.5"),
            "d": ("DATE '1000-01-01'", "DATE '2024-05-05'", "DATE '9999-01-01'"),
            "ts": ("TIMESTAMP '1000-01-01 00:00:00'", "TIMESTAMP '2024-05-05 00:00:00'"),
            "tz": ("TIMESTAMPTZ '1000-01-01 00:00:00+00'", "TIMESTAMPTZ '2024-05-05 00:00:00+00'"),
        }[column]
        for operator in ("=", "<", ">")
    ]
    with catalog._engine.connect() as connection:
        saved = connection.execute(
            table.select()
            .with_only_columns(table.c.data_file_id, table.c.min_value, table.c.max_value)
            .where(table.c.column_id == id_)
        ).all()
    try:
        with catalog._engine.connect() as connection, catalog.backend.begin_commit(connection).begin():
            for file, junk in zip(pruned.ids, itertools.cycle(_JUNK[column])):
                connection.execute(
                    table.update()
                    .where(table.c.column_id == id_, table.c.data_file_id == file)
                    .values(min_value=junk, max_value=junk)
                )
        pruned.lake._context.forget()  # no snapshot tells of the change
        for where in wanted:
            assert pruned.planned(where) == set(pruned.ids), where
    finally:
        with catalog._engine.connect() as connection, catalog.backend.begin_commit(connection).begin():
            for file, low, high in saved:
                connection.execute(
                    table.update()
                    .where(table.c.column_id == id_, table.c.data_file_id == file)
                    .values(min_value=low, max_value=high)
                )
        pruned.lake._context.forget()
