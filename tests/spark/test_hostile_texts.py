"""Texts that others have stored in a lake run in Spark as what they must be, or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quacklake
from quacklake.errors import QuacklakeError
from quacklake.pipelines import Pipeline
from tests import seeds
from tests.pipelines.tables import definition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY = "quacklake.hostile"
RUNS = f"'java.lang.System', 'setProperty', '{PROPERTY}', 'ran'"
SECRET = "what nobody may read"
#: Expressions that call methods, read settings or tell about whoever runs them.
EXPRESSIONS = [
    f"reflect({RUNS})",
    f"java_method({RUNS})",
    f"try_reflect({RUNS})",
    f"`reflect`({RUNS})",
    f"system.builtin.reflect({RUNS})",
    f"IDENTIFIER('reflect')({RUNS})",
    f"concat('x', reflect({RUNS}))",
    f"CASE WHEN true THEN reflect({RUNS}) END",
    f"(SELECT max(reflect({RUNS})))",
    f"transform(array(1), x -> reflect({RUNS}))",
    "'${env:PATH}'",
    "'${spark.quacklake.hidden}'",
    "`${env:PATH}`",
    "input_file_name()",
    "current_user()",
    "current_catalog()",
    "version()",
    "mine(1)",
    "xpath_string('<!DOCTYPE a [<!ENTITY x SYSTEM \"file:{file}\">]><a>&x;</a>', 'a')",
    "from_avro(CAST('x' AS BINARY), '\"string\"', map('avroSchemaUrl', 'file:{file}'))",
    "from_xml('<a/>', 'a STRING', map('rowValidationXSDPath', '{file}'))",
    "(SELECT max(value) FROM text.`{file}`)",
    "(SELECT max(value) FROM (TABLE text.`{file}`))",
    "(SELECT max(value) FROM IDENTIFIER('text.`{file}`'))",
    "(SELECT max(a) FROM theirs)",
]
#: Queries of ``{from}`` that do so outside of expressions.
QUERIES = [
    "SELECT TRANSFORM(1) USING 'touch {file}.new' AS (c STRING) FROM {from}",
    "FROM {from} MAP 1 USING 'touch {file}.new' AS c",
    "FROM {from} INSERT OVERWRITE DIRECTORY '{file}.new' SELECT 1",
    "SELECT value AS c FROM {from}, text.`{file}`",
    "SELECT 1 AS c FROM {from}; INSERT OVERWRITE DIRECTORY '{file}.new' SELECT 1",
    "INSERT OVERWRITE DIRECTORY '{file}.new' USING text SELECT 'x'",
    "SET spark.quacklake.hidden",
    "TABLE text.`{file}`",
]


class Place:
    """A lake in Spark, and what would show that a hostile text has run."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self.folder, self.session = folder, session
        self.lake = quacklake.connect(f"sqlite:///{folder}/lake.db", data_path=str(folder / "data"))
        self.spark = quacklake.spark(self.lake, session)
        self.file = folder / "secret.txt"
        self.file.write_text(SECRET)
        self.lake.sql("CREATE TABLE t (i BIGINT, s VARCHAR); INSERT INTO t VALUES (1, 'a')")

    def write(self, sql: str, *values: Any) -> None:
        """Change the metadata behind the lake's back."""
        with closing(sqlite3.connect(self.folder / "lake.db")) as database, database:
            assert database.execute(sql, values).rowcount == 1

    def check_untouched(self, shown: str) -> None:
        runtime = self.session.sparkContext._jvm
        assert runtime is not None
        assert runtime.java.lang.System.getProperty(PROPERTY) is None
        assert [path.name for path in self.folder.glob("*.new")] == []
        assert SECRET not in shown


@pytest.fixture
def place(tmp_path: Path, session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    session.conf.set("spark.quacklake.hidden", SECRET)
    session.sql(f"SELECT '{SECRET}' AS a").createOrReplaceTempView("theirs")
    session.udf.register("mine", lambda _: SECRET)
    found = Place(tmp_path, session)
    yield found
    found.lake.close()
    session.catalog.dropTempView("theirs")
    session.conf.unset("spark.quacklake.hidden")


def _fill(text: str, place: Place, source: str) -> str:
    return text.replace("{file}", str(place.file)).replace("{from}", source)


def test_hostile_expressions_do_what_they_are_refused_for(place: Place) -> None:
    found = place.session.sql("SELECT '${spark.quacklake.hidden}' AS a, (SELECT max(a) FROM theirs) AS b").collect()
    assert tuple(found[0]) == (SECRET, SECRET)
    place.session.sql(f"SELECT {EXPRESSIONS[0]}").collect()
    runtime = place.session.sparkContext._jvm
    assert runtime is not None
    assert runtime.java.lang.System.clearProperty(PROPERTY) == "ran"


def test_a_stored_view_in_the_sql_of_spark_reads_the_lake_alone(place: Place) -> None:
    def store(text: str) -> None:
        place.lake.create_view("v", "SELECT i AS c FROM t", replace=True)  # a new snapshot, which nothing remembers
        place.write("UPDATE ducklake_view SET dialect = 'spark', sql = ? WHERE end_snapshot IS NULL", text)

    store("SELECT upper(s) AS c, i + 1 AS j, 'it''s {x' AS u FROM t WHERE i IN (SELECT i FROM t)")
    assert [tuple(row) for row in place.spark.sql("SELECT * FROM v").collect()] == [("A", 2, "its {x")]
    store("SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY i) AS c FROM (VALUES (1), (2)) AS v(i)")
    assert [tuple(row) for row in place.spark.sql("SELECT * FROM v").collect()] == [(1.25,)]  # and not approximate
    for text in seeds.some([*(f"SELECT {text} AS c FROM t" for text in EXPRESSIONS), *QUERIES], 12, "hostile views"):
        store(_fill(text, place, "t"))
        with pytest.raises(QuacklakeError) as failed:
            place.spark.sql("SELECT * FROM v").collect()
        place.check_untouched(str(failed.value))


def test_a_stored_sort_key_computes_nothing_but_its_columns(place: Place) -> None:
    rows = place.session.createDataFrame([(2, "b"), (3, "c")], "i BIGINT, s STRING")
    others = ["s) FROM (SELECT 1", "s, reflect('a', 'b')", "*"]
    for text in seeds.some([*EXPRESSIONS, *others], 8, "hostile sort keys", always=EXPRESSIONS[:1]):
        place.lake.sql("ALTER TABLE t RESET SORTED BY; ALTER TABLE t SET SORTED BY (s)")
        change = "UPDATE ducklake_sort_expression SET expression = ? WHERE sort_id = (SELECT max(sort_id) FROM ducklake_sort_info)"
        place.write(change, _fill(text, place, "t"))
        shown = ""
        try:
            place.spark.append("t", rows)
        except QuacklakeError as error:
            shown = str(error)
        place.check_untouched(shown)


@pytest.mark.parametrize("engine", ["where", "query"])
def test_the_query_of_a_pipeline_reads_its_source_and_the_lake_alone(place: Place, engine: str, tmp_path: Path) -> None:
    place.lake.sql("CREATE TABLE orders (id BIGINT, v BIGINT); INSERT INTO orders VALUES (1, 2)")
    texts = [f"SELECT source.*, {text} AS c FROM source" for text in EXPRESSIONS] + QUERIES
    wheres = [f"{text} IS NOT NULL" for text in EXPRESSIONS]
    chosen = seeds.some(texts if engine == "query" else wheres, 6, "hostile pipelines on Spark", engine)
    for number, text in enumerate(chosen):
        sink: dict[str, Any] = {"name": "copy", "type": "lake", "table": "copied"}
        options: dict[str, Any] = {"query": _fill(text, place, "source")}
        if engine == "where":
            sink["where"], options = _fill(text, place, "source"), {"query": None}
        given = definition(tmp_path, sinks=[sink], engine="spark", pipeline=f"p{number}", **options)
        with pytest.raises(QuacklakeError) as failed:
            Pipeline(place.lake, given).run(until_caught_up=True)
        place.check_untouched(str(failed.value))
        assert "copied" not in str(place.lake.sql("SHOW TABLES").fetchall())


def test_values_are_not_replaced_by_settings(place: Place) -> None:
    text = "${spark.quacklake.hidden}"
    place.lake.sql(f"ALTER TABLE t ADD COLUMN d VARCHAR DEFAULT '{text}'")
    place.lake.table("t").append([{"i": 2, "s": text}])
    place.spark.append("t", place.session.createDataFrame([(3, "b")], "i BIGINT, s STRING"))
    place.spark.update("t", {"s": text}, where="i = 3")
    found = {tuple(row) for row in place.spark.table("t", where=f"s = '{text}'").collect()}
    assert found == {(2, text, None), (3, text, text)} or found == {(2, text, text), (3, text, text)}
    assert SECRET not in str(place.spark.table("t").collect())
