"""DuckLake as pure functions and data: no input and no output.

=========================  ===========================================================
module                  what it holds
=========================  ===========================================================
:mod:`.types`           the scalar types and their DuckDB, Arrow, Parquet and Spark counterparts
:mod:`.schema`          columns with field ids, to and from Arrow and catalog rows
:mod:`.names`           names: what is allowed, how they compare, how SQL spells them
:mod:`.stats`           column statistics of a file and of a table, and how they merge
:mod:`.bounds`          one minimum or maximum, to and from its text
:mod:`.measure`         the statistics of an Arrow column
:mod:`.temporal`        dates and times as integers, to and from DuckDB's text
:mod:`.geometry`        bounding boxes of WKB geometries
:mod:`.changes`         the ``changes_made`` grammar
:mod:`.conflicts`       which two changes exclude each other
:mod:`.snapshots`       snapshots and what is visible in them
:mod:`.paths`           names and relative paths that cannot leave the data root
:mod:`.predicate`       filters that can rule out whole files
:mod:`.inline`          how rows inside the catalog are stored
:mod:`.column_paths`    columns and nested fields by their path
:mod:`.evolution`       changes of a schema, and the catalog rows they end and begin
:mod:`.literals`        values as the text DuckDB casts them to
:mod:`.partitions`      partition keys, their values and folders
:mod:`.transforms`      what a partition transform makes of a value
:mod:`.murmur`          the hash behind ``bucket``, of a value, of an Arrow column and in SQL
:mod:`.partition_pruning`  which partitions a filter rules out
:mod:`.vectors`         deletion vectors and the files that hold them
:mod:`.options`         the options a lake, schema or table can carry
:mod:`.objects`         tables, schemas and files as they move between layers
=========================  ===========================================================
"""
