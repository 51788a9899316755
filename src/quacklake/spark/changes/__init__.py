"""Changes of rows on Spark.

===========================  ====================================================================
module                       what it holds
===========================  ====================================================================
:mod:`.merge`                MERGE, with a builder for its clauses
:mod:`.statements`           DELETE and UPDATE
:mod:`.clauses`              which rows a statement changes, and what they become
:mod:`.changes`              what becomes of the files of changed rows
:mod:`.places`               where changed rows are, as the driver gets to know it
:mod:`.partition_overwrite`  rows that take the place of their partitions
===========================  ====================================================================
"""
