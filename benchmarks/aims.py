"""The aims: figures that were set before they were reached, and the reason where one is not reached yet."""

from __future__ import annotations

from benchmarks.published import Aim

__all__ = ["AIMS"]

AIMS = (
    Aim(
        "10 rows × 23 columns a batch on PostgreSQL, beside the extension",
        "inlining",
        "insert one batch, mean",
        "≥ 5×",
        "All of it is processor time: of the client as in the next line, and about 1 ms of the server. A sync of the"
        " disk takes 0.15 ms.",
    ),
    Aim(
        "processor time of the client for such a batch",
        "inlining",
        "insert one batch, processor time of the client",
        "≤ 1.5 ms",
        "Of 1,739 stacks that were sampled, 35 % were in the driver (a commit is BEGIN and three messages),"
        " 13 % with the totals of 23 columns, 9 % with JSON of the rows and 7 % with encoding them; the rest is spread"
        " over a hundred functions of which none takes 3 %. The extension's client takes 12 to 20 ms.",
    ),
    Aim(
        "aggregate over rows that are still inlined",
        "inlining",
        "aggregate all columns.*",
        "≥ 1×",
        "Of 300,010 rows, which come as text by COPY and are cast back. The same snapshot takes as long as a new one,"
        " so that many are not remembered; of 3,010 rows a snapshot that did not change is 2.9× as fast.",
    ),
    Aim(
        "1 % deleted in every file: aggregate",
        "deletes",
        "every file: full aggregate",
        "≤ 1.05×",
        "What the section calls the floor of SQL takes 1.11×; its notes tell where the rest goes.",
    ),
    Aim(
        "1 % deleted in every file: group by",
        "deletes",
        "every file: group by",
        "≤ 1.1×",
        "What the section calls the floor of SQL takes 1.15×.",
    ),
    Aim("TPC-H with every table registered again", "tpch", "22 queries, all 8 tables registered again.*", "≤ 1×"),
    Aim(
        "change feed: 40 snapshots / the last tenth / one update",
        "feed",
        "all 40 .*|the last tenth|one update",
        "≤ 0.9×",
        "The notes of the section say where the time of the first goes.",
    ),
    Aim(
        "plan of 1,000 files on SQLite, beside deltalake and pyiceberg", "planning", r"SQLite, 1,000 files.*", "≥ 1.5×"
    ),
    Aim(
        "connect and first query",
        "cli",
        "connect and first query.*",
        "≤ 40 / ≤ 100 ms",
        "A new database of DuckDB for the session takes 12 ms of processor time; to_arrow, which needs none, takes 11"
        " and 20 ms, the latter with a connection to PostgreSQL that is opened first.",
    ),
    Aim("`quacklake sql 'select 1'`, wall time", "cli", "quacklake sql 'select 1', wall time", "≤ 0.35 s"),
    Aim("`import quacklake`", "cli", "import quacklake.*", "≤ 50 ms"),
    Aim(
        "32 writers on one table, PostgreSQL",
        "writers",
        ".*",
        "≥ 10×",
    ),
    Aim("32 writers on 32 tenants beside 32 on one", "tenants", "32 writers on 32 tenants.*", "≥ 4×"),
    Aim("add_files, PostgreSQL", "add_files", "PostgreSQL,.*", "≥ 5×"),
    Aim("Spark: DELETE of 1 %", "spark", "DELETE of 1 %", "≤ 1× of Iceberg"),
    Aim("Spark: append", "spark", "append", "≤ 0.95× of Iceberg"),
    Aim("Spark: plan of all of 100,000 files", "spark", "plan of all of .*", "≤ 1 s"),
    Aim("Spark: batch of 1,000 rows", "spark", "a batch of .*", "≤ 25 ms over a sink that does nothing"),
)
