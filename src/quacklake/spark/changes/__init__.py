"""Change rows with Spark.

===========================  ====================================================================
module                       contents
===========================  ====================================================================
:mod:`.merge`                MERGE, with a builder for its clauses
:mod:`.delete_update`        DELETE and UPDATE
:mod:`.clauses`              the rows that a statement changes, and their new values
:mod:`.keys`                 keys of rows in the form of the table
:mod:`.staged_changes`       applying staged changes to a transaction
:mod:`.row_places`           the positions of changed rows
:mod:`.partition_overwrite`  replacing whole partitions
===========================  ====================================================================
"""
