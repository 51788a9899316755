"""SQL of Spark over a lake: the same text says the same as in ``lake.sql``, and changes the same rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from sqlglot import exp

import quacklake
from quacklake.errors import (
    AlreadyExistsError,
    InputError,
    NotFoundError,
    QuacklakeError,
    SchemaMismatchError,
    SqlError,
    UnsupportedFeatureError,
)
from quacklake.spark.maintenance import SparkFiles
from quacklake.spark.runtime.words import SparkCursor, text_of
from quacklake.spark.sql.parsing import (
    as_literal,
    declaration,
    only_statement,
    parse,
    with_values,
)
from quacklake.spark.sql.pruning import conditions
from quacklake.spark.sql.tables import alterations, lake_columns

from .core import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quacklake.spark.lake import SparkLake

Rows = list[tuple[Any, ...]]


# -- words and trees ---------------------------------------------------------------------------------------------------


def test_values_take_the_place_of_parameters() -> None:
    text = "SELECT ?, '?', `?`, \"it's ?\" -- ?\nFROM t WHERE a = ?"
    assert with_values(text, [1, "x'y"]) == (
        "SELECT 1, '?', `?`, \"it's ?\" -- ?\nFROM t WHERE a = decode(X'782779', 'UTF-8')"
    )
    assert with_values("SELECT :a, x::INT, :b", {"a": None, "b": True, "c": 1}) == "SELECT NULL, x::INT, TRUE"
    assert with_values("SELECT ?", None) == "SELECT ?"
    for wrong, params in (
        ("SELECT ?", []),
        ("SELECT ?", {"a": 1}),
        ("SELECT :a", [1]),
        ("SELECT :a", {"b": 1}),
        ("SELECT 1", [1]),
        ("SELECT ?", "x"),
        ("SELECT ?", [object()]),
    ):
        with pytest.raises(InputError):
            with_values(wrong, params)


def test_values_of_python_are_literals_of_spark() -> None:
    noon = dt.datetime(2024, 1, 2, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert [as_literal(value) for value in (-1, 1.5, Decimal("1.50"), b"\x01", [1, "a"], {"k": 2}, noon.date())] == [
        "(-1)",
        "(1.5D)",
        "(1.50BD)",
        "X'01'",
        "array(1, 'a')",
        "map('k', 2)",
        "DATE '2024-01-02'",
    ]
    assert as_literal(noon) == "TIMESTAMP_LTZ '2024-01-02 10:00:00+00:00'"
    assert as_literal(float("nan")) == "double('nan')"


def test_texts_are_read_as_spark_reads_them() -> None:
    assert [text_of(text) for text in ("'it''s'", '"a\\n\\"b"', "'\\u00e9\\%'", "r'\\n'")] == [
        "it's",
        'a\n"b',
        "é\\%",
        "\\n",
    ]
    assert [word.value for word in SparkCursor("`a``b`.c").words] == ["a`b", ".", "c"]
    assert only_statement(" SELECT ';' ; ") == "SELECT ';'"
    for wrong in ("", ";", "SELECT 1; SELECT 2"):
        with pytest.raises(SqlError):
            only_statement(wrong)
    with pytest.raises(SqlError, match="unterminated"):
        only_statement("SELECT `a")


def found(sql: str) -> list[str]:
    """The conditions on the table ``t`` of a query."""
    tables = [each for each in parse(sql).find_all(exp.Table) if each.name == "t" and declaration(each) is None]
    (table,) = tables
    return [each.sql("duckdb") for each in conditions(table)]


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("SELECT * FROM t WHERE a = 1 AND (b < 2 OR b > 5)", ['"a" = 1', '"b" < 2 OR "b" > 5']),
        ("SELECT * FROM t x JOIN u ON x.a = 1 AND u.b = 2 WHERE x.c IS NULL", ['"c" IS NULL', '"a" = 1']),
        ("SELECT * FROM t, u WHERE a = 1", []),
        ("SELECT * FROM u LEFT JOIN t ON t.a = 1 WHERE t.b = 2 AND t.c IS NULL", ['"b" = 2']),
        ("SELECT * FROM t WHERE a IN (SELECT a FROM u) AND b = 1", ['"b" = 1']),
        ("SELECT * FROM (SELECT x AS y, z FROM t) q WHERE q.y > 3", ['("x" > 3)']),
        ("SELECT * FROM (SELECT x + 1 AS y FROM t) q WHERE y > 3", []),
        ("SELECT * FROM (SELECT x, count(*) FROM t GROUP BY x) WHERE x > 3", []),
        ("SELECT * FROM (SELECT x, row_number() OVER (ORDER BY x) r FROM t) WHERE x > 3", []),
        ("SELECT * FROM (SELECT * FROM t LIMIT 3) WHERE x > 3", []),
        ("SELECT * FROM (SELECT * FROM t) q(y) WHERE q.y > 3", []),
        ("WITH q AS (SELECT * FROM t) SELECT * FROM q WHERE x > 3", ['("x" > 3)']),
        ("WITH q AS (SELECT * FROM t) SELECT * FROM q WHERE x > 3 UNION ALL SELECT * FROM q", []),
        ("SELECT * FROM t TABLESAMPLE (10 PERCENT) WHERE x > 3", []),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t WHERE x = 1", ['("x" = 1)']),
        ("SELECT * FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.x = 1 AND t.y = u.y)", ['"x" = 1']),
    ],
)
def test_only_what_holds_for_every_row_of_a_table_rules_out_files(sql: str, wanted: Sequence[str]) -> None:
    assert found(sql) == wanted


def test_a_common_table_hides_names_behind_it_only() -> None:
    tree = parse("WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM b, (SELECT * FROM a) x")
    tables = sorted(tree.find_all(exp.Table), key=lambda table: int(table.parts[0].meta["start"]))
    hidden = [declaration(table) is not None for table in tables]
    assert hidden == [False, True, True, True]
    recursive = parse("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT * FROM r) SELECT * FROM r")
    assert all(declaration(table) is not None for table in recursive.find_all(exp.Table))


def test_columns_and_changes_are_said_in_the_sql_of_the_lake() -> None:
    columns = "a BIGINT NOT NULL, `b c` STRING, t TIMESTAMP, n TIMESTAMP_NTZ, s STRUCT<x: INT, y: ARRAY<DOUBLE>>"
    assert lake_columns(columns) == [
        '"a" BIGINT NOT NULL',
        '"b c" TEXT',
        '"t" TIMESTAMPTZ',
        '"n" TIMESTAMP',
        '"s" STRUCT("x" INT, "y" DOUBLE[])',
    ]
    for text, wanted in (
        ("ADD COLUMNS (x INT DEFAULT 5, y STRING)", ['ADD COLUMN "x" INT DEFAULT 5', 'ADD COLUMN "y" TEXT']),
        ("ADD COLUMN s.z DECIMAL(9, 2)", ['ADD COLUMN "s"."z" DECIMAL(9, 2)']),
        ("DROP COLUMNS (x, `y z`)", ['DROP COLUMN "x"', 'DROP COLUMN "y z"']),
        ("RENAME COLUMN x TO `y`", ['RENAME COLUMN "x" TO "y"']),
        ("RENAME TO main.z", ['RENAME TO "z"']),
        ("ALTER COLUMN x TYPE BIGINT", ['ALTER COLUMN "x" TYPE BIGINT']),
        ("ALTER COLUMN x SET DEFAULT 'a\\'b'", ["ALTER COLUMN \"x\" SET DEFAULT 'a''b'"]),
        ("ALTER COLUMN x DROP NOT NULL", ['ALTER COLUMN "x" DROP NOT NULL']),
        ("SET TBLPROPERTIES ('a' = 'b', c.d = 1)", ["SET (\"a\" = 'b', \"c.d\" = '1')"]),
        ("UNSET TBLPROPERTIES ('a')", ['RESET ("a")']),
        ("SET PARTITIONED BY (bucket(4, id))", ["SET PARTITIONED BY (bucket(4, id))"]),
        ("RESET SORTED BY", ["RESET SORTED BY"]),
    ):
        assert alterations(SparkCursor(text)) == wanted
    with pytest.raises(SqlError, match=r"\^"):
        alterations(SparkCursor("EXPLODE COLUMN x"))
    with pytest.raises(UnsupportedFeatureError):
        lake_columns("a INT COMMENT 'x'")


# -- queries -----------------------------------------------------------------------------------------------------------


def rows(found: Any) -> Rows:
    """The rows of a DataFrame or of a result, in an order."""
    collected = found.collect() if hasattr(found, "collect") else found.fetchall()
    return sorted((tuple(row) for row in collected), key=str)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Lake]:
    """Sales of three shops over two days, at three snapshots, and things that stand on them."""
    home = tmp_path_factory.mktemp("sql")
    with quacklake.connect(f"sqlite:///{home}/lake.db", data_path=f"{home}/data/", data_inlining_row_limit=0) as made:
        made.sql(
            "CREATE TABLE sales (id BIGINT, shop INTEGER, amount DOUBLE, moment TIMESTAMPTZ) PARTITIONED BY (shop)"
        )
        made.sql(
            "INSERT INTO sales SELECT i, i % 3, i / 4, TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_hours(i)"
            " FROM range(30) r(i)"
        )
        made.tag("first")
        made.sql(
            "INSERT INTO sales SELECT i, i % 3, i / 4, TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_hours(i)"
            " FROM range(30, 48) r(i)"
        )
        made.sql("DELETE FROM sales WHERE id = 4")
        made.sql("CREATE SCHEMA other")
        made.sql("CREATE TABLE other.shops (shop INTEGER, city VARCHAR)")
        made.sql("INSERT INTO other.shops VALUES (0, 'Athens'), (1, 'Bern'), (2, 'Cork')")
        made.sql("CREATE VIEW big AS SELECT id, shop, amount::INTEGER AS euros FROM sales WHERE amount >= 2")
        made.sql("CREATE VIEW named(a, b) AS SELECT shop, city FROM other.shops")
        made.sql(
            "CREATE VIEW lists AS SELECT [shop, 7] AS l, moment + INTERVAL 2 DAY > moment AS m FROM sales WHERE id < 2"
        )
        made.sql("CREATE VIEW hard AS SELECT epoch_ns(moment) AS n FROM sales")
        made.sql("CREATE VIEW harder AS SELECT * FROM sales POSITIONAL JOIN other.shops")
        yield made


@pytest.fixture(scope="module")
def spark(lake: quacklake.Lake, session: SparkSession) -> SparkLake:
    return quacklake.spark(lake, session)


def test_queries_say_the_same_in_spark_as_in_duckdb(lake: quacklake.Lake, spark: SparkLake) -> None:
    moment = lake.snapshots().column("snapshot_time").to_pylist()[2].isoformat(sep=" ")
    texts = [
        "SELECT count(*), sum(id), (SELECT count(*) FROM sales AT (VERSION => 2)) FROM sales WHERE shop = 1 AND id > 3",
        "SELECT sales.id FROM main.sales WHERE main.sales.id < 6",
        "WITH sales AS (SELECT shop, sum(amount) AS s FROM lake.main.sales GROUP BY shop)"
        " SELECT city, s FROM sales JOIN other.shops ON sales.shop = shops.shop",
        "SELECT a.id FROM sales AS a AT (VERSION => 2) LEFT JOIN lake.sales b ON a.id = b.id WHERE b.id IS NULL",
        "SELECT l, m FROM lists",
        "SELECT max(n), count(*) FROM hard",
        "SELECT id, city FROM harder",
        "SELECT n.b, count(*) FROM big JOIN named n ON n.a = big.shop WHERE big.shop <> 0 AND euros < 9 GROUP BY n.b",
    ]
    for text in texts:
        assert rows(spark.sql(text)) == rows(lake.sql(text)), text
    spellings = (
        "AT (VERSION => 2)",
        "VERSION AS OF 2",
        "FOR VERSION AS OF 2",
        "SNAPSHOT AS OF 2",
        "AT SNAPSHOT 2",
        "AT VERSION 'first'",
        "VERSION AS OF 'first'",
        f"TIMESTAMP AS OF '{moment}'",
        f"FOR SYSTEM_TIME AS OF TIMESTAMP '{moment}'",
        f"AT (TIMESTAMP => TIMESTAMP '{moment}')",
        "FOR SYSTEM_VERSION AS OF 2",
    )
    for spelling in spellings:
        assert len(spark.sql(f"SELECT s.id FROM sales {spelling} s").inputFiles()) == 3, spelling
    assert rows(spark.sql("SELECT max(id) FROM sales VERSION AS OF :v WHERE id < :n", {"v": 2, "n": 20})) == [(19,)]


def test_filters_rule_out_files(spark: SparkLake) -> None:
    def files(text: str, params: Sequence[Any] | None = None) -> int:
        paths = spark.sql(text, params).inputFiles()
        return sum("-delete" not in path for path in paths)

    assert files("SELECT * FROM sales") == 6
    assert files("SELECT * FROM sales WHERE shop = ?", [1]) == 2
    assert files("SELECT * FROM big WHERE shop = 1 AND id > 40") == 1
    assert files("SELECT * FROM sales a JOIN sales b ON a.id = b.id WHERE a.shop = 1 AND b.shop = 2 AND b.id < 9") == 3
    # the session's zone is New York: the second snapshot begins there on the 2nd at 01:00
    assert files("SELECT * FROM sales WHERE moment >= TIMESTAMP '2024-01-02 01:00:00'") == 3
    assert files("SELECT * FROM sales WHERE moment >= '2024-01-02 00:30:00'") == 3
    assert files("SELECT * FROM sales WHERE moment >= TIMESTAMP '2024-01-02 00:30:00+00'") == 6
    assert files("SELECT * FROM sales WHERE shop + 1 = 2") == 6


def test_tables_of_spark_stand_beside_those_of_the_lake(spark: SparkLake, session: SparkSession) -> None:
    settings = settings_of(session)
    before = {table.name for table in session.catalog.listTables()}
    session.range(3).selectExpr("CAST(id AS INT) AS shop", "id * 100 AS bonus").createOrReplaceTempView("bonuses")
    try:
        joined = spark.sql("SELECT max(bonus), '{x}' FROM sales JOIN bonuses USING (shop) WHERE sales.id < 2")
        assert rows(joined) == [(100, "{x}")]
        spark.sql("CREATE OR REPLACE TEMP VIEW few AS SELECT * FROM sales VERSION AS OF 2 WHERE id < 5")
        assert spark.sql("TABLE few").count() == 5
        shown = rows(spark.sql("SHOW TABLES"))
        assert ("main", "sales", False) in shown
        assert ("", "few", True) in shown
        left = {table.name for table in session.catalog.listTables()} - before
        assert left == {"bonuses", "few"}, "nothing else is left"
    finally:
        session.catalog.dropTempView("bonuses")
        session.catalog.dropTempView("few")
    assert settings_of(session) == settings
    assert rows(spark.sql("DESCRIBE other.shops")) == [("city", "string", None), ("shop", "int", None)]
    assert "Scan parquet" in spark.sql("EXPLAIN SELECT * FROM sales").collect()[0][0]


def test_what_is_known_of_a_table_stands_beside_it(lake: quacklake.Lake, spark: SparkLake) -> None:
    history = lake.table("sales").history().column("snapshot_id").to_pylist()
    found = spark.sql("SELECT snapshot_id, changes FROM sales.history").collect()
    assert [row[0] for row in found] == history == [4, 3, 2, 1]
    newest = lake.snapshots().column("snapshot_id").to_pylist()[-1]
    assert rows(spark.sql("SELECT min(snapshot_id), max(snapshot_id) FROM lake.other.shops.snapshots")) == [(6, newest)]
    files = "SELECT count(*), count(delete_file), sum(data_file_size_bytes) FROM {}"
    function = "list_files('sales', snapshot_version => 3)"
    assert rows(spark.sql(files.format("sales.files VERSION AS OF 3"))) == rows(lake.sql(files.format(function)))
    assert rows(spark.sql(files.format(function))) == rows(lake.sql(files.format(function)))
    changes = "SELECT _change_type, _commit_version, count(*) FROM main.sales.changes GROUP BY 1, 2"
    assert rows(spark.sql(changes)) == [("delete", 4, 1), ("insert", 2, 30), ("insert", 3, 18)]


def test_wrong_statements_are_errors_of_ours(spark: SparkLake) -> None:
    with pytest.raises(SqlError, match=r"id = = 3\n +\^"):
        spark.sql("SELECT *\nFROM sales VERSION AS OF 2\nWHERE id = = 3")
    with pytest.raises(SqlError, match=r"\^"):
        spark.sql("SELEC 1")
    with pytest.raises(SqlError, match="idd"):
        spark.sql("SELECT idd FROM sales")
    for text in ("SELECT * FROM salse", "SELECT * FROM lake.salse", "SELECT * FROM salse VERSION AS OF 2"):
        with pytest.raises(NotFoundError) as missing:
            spark.sql(text)
        assert "sales" in str(missing.value.hint), text
    with pytest.raises(NotFoundError):
        spark.sql("SELECT * FROM sales VERSION AS OF 999")
    with pytest.raises(UnsupportedFeatureError, match=r"table_changes"):
        spark.sql("SELECT * FROM table_changes('sales', 1, 2)")
    with pytest.raises(SqlError, match="view"):
        spark.sql("DELETE FROM big WHERE id = 1")
    with pytest.raises(SqlError, match="procedure"):
        spark.sql("CALL merge_adjacent_file('sales')")
    with pytest.raises(InputError):
        spark.sql(1)  # type: ignore[arg-type]


# -- changes -----------------------------------------------------------------------------------------------------------

_CHANGES = (
    "CREATE TABLE t (id BIGINT NOT NULL, k INT, v STRING) PARTITIONED BY (k)",
    "INSERT INTO t SELECT r.id, CAST(r.id % 2 AS INT), concat('v', r.id) FROM numbers r WHERE r.id < 20",
    "INSERT INTO t (v, id) VALUES ('only', 100), (NULL, 101)",
    "ALTER TABLE t ADD COLUMN d DOUBLE DEFAULT 0.5",
    "INSERT INTO t BY NAME SELECT 200 AS id, 1.25 AS d, 'named' AS v",
    "UPDATE t SET v = v || '!', d = id * 2 WHERE id IN (SELECT max(id) - 1 FROM t WHERE id < 20) OR t.k IS NULL",
    "DELETE FROM t AS a WHERE a.id < 5 AND EXISTS (SELECT 1 FROM numbers b WHERE b.id = a.id + 97)",
    "MERGE INTO t AS a USING (SELECT id + 10 AS id, 'merged' AS v FROM numbers WHERE id < 12) b ON a.id = b.id"
    " WHEN MATCHED AND b.id = 11 THEN DELETE"
    " WHEN MATCHED THEN UPDATE SET v = concat(b.v, a.v), d = NULL"
    " WHEN NOT MATCHED THEN INSERT (id, v) VALUES (b.id, b.v)",
    "ALTER TABLE t RENAME COLUMN v TO w",
    "CREATE TABLE made AS SELECT k, count(*) AS n FROM t GROUP BY k",
    "INSERT INTO made SELECT 7, 8",
)


@pytest.mark.needs_spark("4.0")
def test_the_same_statements_change_the_same_rows(tmp_path: Any, session: SparkSession) -> None:
    lakes = [
        quacklake.connect(f"sqlite:///{tmp_path}/{name}.db", data_path=f"{tmp_path}/{name}/") for name in ("one", "two")
    ]
    spark = quacklake.spark(lakes[0], session)
    for lake in lakes:
        lake.sql("CREATE TABLE numbers AS SELECT i AS id FROM range(100) r(i)")
    counts = []
    for text in _CHANGES:
        counts.append([tuple(row) for row in spark.sql(text).collect()])
        lakes[1].sql(text)
    assert counts == [
        [],
        [(20, 20)],
        [(2, 2)],
        [],
        [(1, 1)],
        [(4,)],
        [(3,)],
        [(12, 9, 1, 2)],
        [],
        [(3, 3)],
        [(1, 1)],
    ]
    for query in ("SELECT * FROM t", "SELECT * FROM made"):
        wanted = rows(lakes[1].sql(query))
        assert rows(lakes[0].sql(query)) == wanted
        assert rows(spark.sql(query)) == wanted
    before = lakes[0].snapshots().num_rows
    assert before == lakes[1].snapshots().num_rows, "one snapshot each"
    for lake in lakes:
        lake.close()


@pytest.mark.needs_spark("4.0")
def test_overwriting_keeping_and_refusing(tmp_path: Any, session: SparkSession) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{tmp_path}/data/") as lake:
        spark = quacklake.spark(lake, session)

        def all_of(table: str) -> Rows:
            return rows(lake.sql(f"SELECT * FROM {table}"))

        lake.sql("CREATE TABLE t (id INTEGER, p INTEGER) PARTITIONED BY (p)")
        lake.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2), (4, 3)")
        spark.sql("INSERT OVERWRITE TABLE t PARTITION (p = 1) SELECT id * 10 FROM t WHERE p = 1")
        assert all_of("t") == [(10, 1), (20, 1), (3, 2), (4, 3)]
        done = spark.sql(
            "INSERT INTO t REPLACE WHERE p >= 2 AND id IN (SELECT max(id) FROM t WHERE p = 3) VALUES (5, 5)"
        )
        assert rows(done) == [(2, 1)]
        assert all_of("t") == [(10, 1), (20, 1), (3, 2), (5, 5)]
        spark.sql("CREATE OR REPLACE TABLE t AS SELECT id, 'x' AS x FROM t WHERE id > 4")
        assert all_of("t") == [(10, "x"), (20, "x"), (5, "x")]
        spark.sql("INSERT OVERWRITE t SELECT 1, 'y'")
        assert all_of("t") == [(1, "y")]
        spark.sql("CREATE VIEW v AS SELECT id FROM t")
        assert all_of("v") == rows(spark.sql("SELECT * FROM v")) == [(1,)]
        spark.sql("CREATE SCHEMA s")
        spark.sql("CREATE TABLE IF NOT EXISTS s.u (a STRING) COMMENT 'told'")
        spark.sql("COMMENT ON COLUMN s.u.a IS 'more'")
        assert rows(spark.sql("DESCRIBE s.u")) == [("a", "string", "more")]
        refusals: list[tuple[type[QuacklakeError], str]] = [
            (AlreadyExistsError, "CREATE TABLE t AS SELECT 1 AS one"),
            (AlreadyExistsError, "CREATE TABLE t (a INT)"),
            (SqlError, "INSERT INTO t VALUES (1)"),
            (SchemaMismatchError, "INSERT INTO t VALUES ('a', 'b')"),
            (InputError, "UPDATE t SET nope = 1"),
            (SqlError, "UPDATE t SET x = nope"),
            (SqlError, "DELETE FROM t WHERE"),
            (SqlError, "CREATE TABLE w (a INT) LOCATION 'x'"),
            (SqlError, "MERGE INTO t USING t ON t.id = t.id WHEN MATCHED THEN DELETE"),
            (
                UnsupportedFeatureError,
                "MERGE INTO t USING s.u ON id = 1 AND EXISTS (SELECT 1) WHEN MATCHED THEN DELETE",
            ),
            (NotFoundError, "DROP TABLE nope"),
            (UnsupportedFeatureError, "CREATE VIEW past AS SELECT * FROM t VERSION AS OF 1"),
        ]
        newest = lake.snapshots().num_rows
        for kind, text in refusals:
            with pytest.raises(kind):
                spark.sql(text)
        assert lake.snapshots().num_rows == newest, "nothing has changed"
        for text in ("TRUNCATE TABLE t", "DROP VIEW v", "DROP TABLE lake.main.t", "DROP SCHEMA s CASCADE"):
            spark.sql(text)
        assert lake.tables() == []


@pytest.mark.needs_spark("4.0")
def test_procedures_keep_the_lake_in_shape(
    tmp_path: Any, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=f"{tmp_path}/data/", data_inlining_row_limit=0
    ) as lake:
        spark = quacklake.spark(lake, session)
        lake.sql("CREATE TABLE t AS SELECT 1 AS a")
        lake.sql("INSERT INTO t VALUES (2)")
        used: list[str] = []
        merged = SparkFiles.merge
        monkeypatch.setattr(SparkFiles, "merge", lambda *given: used.append("merge") or merged(*given))
        assert rows(spark.sql("CALL lake.system.merge_adjacent_files(table_name => 't')")) == [("main", "t", 2, 1)]
        assert used, "Spark does it"
        spark.sql("CALL set_option('target_file_size', '10MB', table_name => 't')")
        assert rows(spark.sql("SELECT value, scope FROM options() WHERE option_name = 'target_file_size'")) == [
            ("10000000", "TABLE")
        ]
        gone = rows(spark.sql("CALL expire_snapshots(older_than => now())"))
        assert [row[0] for row in gone] == [0, 1, 2]
        assert rows(spark.sql("SELECT * FROM t")) == [(1,), (2,)]
