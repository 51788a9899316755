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
        "All of it is processor time: of the client as in the next line, and about 1.2 ms of the server, of which"
        " EXPLAIN ANALYZE shows 0.3 ms for all that is written (0.1 ms the rows, 0.1 ms the totals of columns) and"
        " 0.06 ms for the turn with the newest snapshot. A sync of the disk takes 0.15 ms. COMMIT in one message with"
        " the rows, by the pipeline of the driver, took no less wall time and 0.1 ms more of the client than alone.",
    ),
    Aim(
        "processor time of the client for such a batch",
        "inlining",
        "insert one batch, processor time of the client",
        "≤ 1.5 ms",
        "Of 819 stacks that were sampled on a busy machine, 20 % were in the driver, 12 % with the totals of 23"
        " columns, 9 % with encoding the rows, 8 % with their JSON, 6 % in SQLAlchemy; the rest is spread over 480"
        " functions. The kernel takes 4 %, the collector of garbage about 5 %. An append runs 33,000 operations of"
        " Python's interpreter, which take longer after the wait for a message: encoding takes 0.2 ms again and again,"
        " and 0.37 ms between messages. The driver alone takes 0.4 to 0.6 ms for three such messages. The extension's"
        " client takes 12 to 20 ms.",
    ),
    Aim(
        "aggregate over rows that are still inlined",
        "inlining",
        "aggregate all columns.*",
        "≥ 1×",
        "Rows that were not read before: our client takes as much of the processor as the extension's, which reads"
        " PostgreSQL's binary form in C++, but the server half as much again, to join the values of each column over"
        " blocks of rows; without that, Python would hold each row. In a tenant rows are JSON, whose values are cast"
        " from text. The notes of the section have the profile. A driver that gives Arrow took more of the server and"
        " the client than blocks; counts of NULLs, lengths of texts and values in arrays took more of the server.",
    ),
    Aim(
        "1 % deleted in every file: aggregate",
        "deletes",
        "every file: full aggregate",
        "≤ 1.05×",
        "What the section calls the floor of SQL takes 1.04×: the reader gives the number of every row, and a test of"
        " it follows; the extension's reader leaves rows out while it decodes. The rest is the anti-join, 3 ns a row"
        " more than that test.",
    ),
    Aim(
        "1 % deleted in every file: group by",
        "deletes",
        "every file: group by",
        "≤ 1.1×",
        "What the section calls the floor of SQL takes 1.08×. Two narrow columns are read, in 9 ns of processor time a"
        " row, so that the anti-join weighs more, 7 ns a row beyond the test of the floor: a hash, a look into the"
        " table of deleted rows, which is larger than the processor's cache, and a selection of those that stay. Three"
        " runs gave 1.30, 1.42 and 1.56.",
    ),
    Aim("TPC-H with every table registered again", "tpch", "22 queries, all 8 tables registered again.*", "≤ 1×"),
    Aim(
        "change feed: 40 snapshots / the last tenth / one update",
        "feed",
        "all 40 .*|the last tenth|one update",
        "≤ 0.9×",
        "Reads of row groups for the rows that went, which both sides unpack whole, are most of the first; plan,"
        " positions, updates and binding run before them and keep little more than one thread busy. The notes of the"
        " section have the figures.",
    ),
    Aim(
        "plan of 1,000 files on SQLite, beside deltalake and pyiceberg", "planning", r"SQLite, 1,000 files.*", "≥ 1.5×"
    ),
    Aim(
        "connect and first query",
        "cli",
        "connect and first query.*",
        "≤ 40 / ≤ 100 ms",
        "A session takes the database of DuckDB that one before it has left; a process's first makes its own, which"
        " takes 15 ms of processor time. PostgreSQL takes 12 ms for a new connection, whose process loads what it knows"
        " of every table it reads; the notes of the section count the messages.",
    ),
    Aim("`quacklake sql 'select 1'`, wall time", "cli", "quacklake sql 'select 1', wall time", "≤ 0.35 s"),
    Aim("`import quacklake`", "cli", "import quacklake.*", "≤ 50 ms"),
    Aim(
        "32 writers on one table, PostgreSQL",
        "writers",
        ".*",
        "≥ 10×",
        "The notes of the section tell how many appends share a commit: four, all threads of a process, are the most.",
    ),
    Aim(
        "32 writers on 32 tenants beside 32 on one",
        "tenants",
        "32 writers on 32 tenants, commits a second",
        "≥ 4×",
        "The two processors are the limit, not a lock, for which no session of the server waits: 1.96 of 2 are in use,"
        " for 1.15 ms an append in our processes and 0.55 ms in the server. Writers on one tenant share commits, up to"
        " four appends each, and an append takes 0.83 and 0.19 ms: since then they are ahead on two processors. The"
        " section has the commits a processor second of both.",
    ),
    Aim("add_files, PostgreSQL", "add_files", "PostgreSQL,.*", "≥ 5×"),
    Aim(
        "Spark: DELETE of 1 %",
        "spark",
        "DELETE of 1 %",
        "≤ 1× of Iceberg",
        "In processor time ours takes about half of Iceberg's 1.7 s: 0.25 s of the JVM, 0.1 s of the driver, and for"
        " each of two tasks 0.1 s to find the rows and write delete files, and what PySpark does before it. It is one"
        " job of one stage, with nothing of Spark before or after it; both wait for the start of Spark jobs.",
    ),
    Aim(
        "Spark: append",
        "spark",
        "append",
        "≤ 0.95× of Iceberg",
        "Spark's Parquet writer takes 86 %, which is the same on all sides. 8 % is the job that looks whether the rows"
        " are few enough for the catalog, in two stages, as Spark's limit shuffles; it also measures a row, so that"
        " files stay below their target size. 3 % is naming the columns with their ids over the bridge to the JVM, 1 %"
        " the commit.",
    ),
    Aim(
        "Spark: plan of all of 100,000 files",
        "spark",
        "plan of all of .*",
        "≤ 1 s",
        "Processor time on a busy machine, 0.43 s of Python: 0.16 s for SQLite to list the columns of the catalog,"
        " 0.03 s to read these, 0.06 s for the look for links among the files, the rest for their groups, names and"
        " the bridge to the JVM. 0.3 s in the JVM, 0.13 s of it for their sizes on the disk.",
    ),
    Aim(
        "Spark: batch of 1,000 rows, beyond a sink that does nothing",
        "spark",
        "a batch of .*, beyond .*",
        "≤ 25 ms",
        "The JVM takes as much processor time as without a sink. Of the time in our sink 58 % is the job that fetches"
        " the rows, 12 % the commit's wait for the disk, 10 % the Parquet file. Three runs gave 25, 44 and 26 ms: it is"
        " the difference of two medians, of 85 and 59 ms on the quickest machine.",
    ),
)
