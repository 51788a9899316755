"""The query of a pipeline reads its source and the lake, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from quacklake.errors import QuacklakeError
from quacklake.pipelines import Pipeline
from tests.pipelines.tables import connect, definition

OUTSIDE = "what is outside"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT *, (SELECT content FROM read_text('{}')) AS c FROM source",
        "SELECT source.*, content FROM source, read_text('{}')",
        "SELECT * FROM source, '{}'",
        "SELECT *, \"(SELECT content FROM read_text('{}')), source\".* FROM source",
        "SELECT *, current_setting('temp_directory') AS c FROM source",
        "SELECT *, getvariable('x') AS c FROM source",
        "SELECT *, setting() AS c FROM source",
        "SELECT source.* FROM source, settings",
        "COPY (FROM source) TO '{}.new'",
        "SELECT * FROM source; COPY (SELECT 1) TO '{}.new'",
    ],
)
def test_a_query_reads_its_source_and_the_lake_alone(query: str, tmp_path: Path) -> None:
    place = tmp_path / "outside.csv"
    place.write_text(OUTSIDE)
    with connect(tmp_path) as lake:
        lake.sql("CREATE TABLE orders (id BIGINT, v BIGINT)")
        lake.sql("INSERT INTO orders VALUES (1, 2)")
        lake.sql("CREATE MACRO setting() AS current_setting('temp_directory')")
        lake.sql("CREATE VIEW settings AS SELECT current_setting('temp_directory') AS c")
        given = definition(tmp_path, sinks=[{"type": "lake", "table": "copied"}], query=query.replace("{}", str(place)))
        with pytest.raises(QuacklakeError) as failed:
            Pipeline(lake, given).run(until_caught_up=True)
        assert OUTSIDE not in str(failed.value)
        assert not list(tmp_path.glob("*.new"))
        assert "copied" not in str(lake.sql("SHOW TABLES").fetchall())
