"""Random views read by DuckDB and by Spark, whichever wrote them: both must give the same rows, or refuse the view."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from quacklake.errors import QuacklakeError
from quacklake.spark.runtime.session import to_arrow
from tests.spark.differential import column_values, is_refusal

if TYPE_CHECKING:
    import quacklake
    from quacklake.spark.lake import SparkLake
    from tests.spark.expressions import Expressions

__all__ = ["ViewTally", "views_of_lake", "views_of_spark"]

_KEYS = ("bo", "i8", "i32", "w", "x", "da", "ts", "d9", "uu", "u64")


@dataclass
class ViewTally:
    """Counts of views tried and of views that both gave, and the texts of those with different rows."""

    tried: int = 0
    given: int = 0
    different: dict[str, str] = field(default_factory=dict)


def query(expressions: Expressions, chance: random.Random) -> str:
    """A query over the table of edge values, with few columns."""
    where = f" WHERE {expressions.condition(2)}" if chance.random() < 0.6 else ""
    key = chance.choice(_KEYS)
    match chance.randrange(6):
        case 0:
            found = expressions.condition(1)
            return f"SELECT {key}, count(*) AS n, min(i32) AS a, count({found}) AS c FROM edges{where} GROUP BY {key}"
        case 1:
            return f"SELECT DISTINCT {key}, {chance.choice(_KEYS)} AS other FROM edges{where}"
        case 2:
            kind = chance.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
            on = f"a.{key} = b.{key}" if chance.random() < 0.7 else f"a.{key} IS NOT DISTINCT FROM b.{key}"
            return f"SELECT a.k, b.k AS l FROM edges a {kind} edges b ON {on}"
        case 3:
            word = chance.choice(("UNION", "UNION ALL", "EXCEPT", "INTERSECT"))
            return f"SELECT {key} FROM edges{where} {word} SELECT {key} FROM edges"
    return f"SELECT k, {expressions.value(1)} AS v FROM edges{where}"


def views_of_lake(
    lake: quacklake.Lake, spark: SparkLake, expressions: Expressions, chance: random.Random, count: int
) -> ViewTally:
    """Compare views that are made in the SQL of DuckDB."""
    tally = ViewTally()
    for _ in range(count):
        text = query(expressions, chance)
        tally.tried += 1
        try:
            lake.sql(f"CREATE OR REPLACE VIEW compared AS {text}")
            own = lake.sql("SELECT * FROM compared").to_arrow()
        except QuacklakeError:
            continue
        _compare(tally, text, own, spark, "SELECT * FROM compared")
    return tally


def views_of_spark(
    lake: quacklake.Lake, spark: SparkLake, expressions: Expressions, chance: random.Random, count: int
) -> ViewTally:
    """Compare views that are made in the SQL of Spark, with what their queries give in Spark."""
    tally = ViewTally()
    for _ in range(count):
        text = query(expressions, chance)
        tally.tried += 1
        try:
            spark.sql(f"CREATE OR REPLACE VIEW compared AS {text}")
            own = lake.sql("SELECT * FROM compared").to_arrow()
        except QuacklakeError:
            continue
        _compare(tally, text, own, spark, text)
    return tally


def _compare(tally: ViewTally, text: str, own: pa.Table, spark: SparkLake, again: str) -> None:
    try:
        theirs = to_arrow(spark.sql(again))
    except Exception as error:
        said = str(error).splitlines()[0]
        if not isinstance(error, QuacklakeError) and not is_refusal(text, said):
            tally.different[text] = said
        return
    tally.given += 1
    if own.column_names != theirs.column_names or _rows(own) != _rows(theirs):
        tally.different[text] = f"{_rows(own)} {_rows(theirs)}"


def _rows(table: pa.Table) -> list[str]:
    columns = ([_whole(value) for value in column_values(column)] for column in table.columns)
    return sorted(map(str, zip(*columns, strict=True)))


def _whole(value: object) -> object:
    """A whole number as one: Spark has decimals for the large ones."""
    return int(value) if isinstance(value, Decimal) and value.as_tuple().exponent == 0 else value
