"""Change rows with Spark: the executor of the statements of :mod:`quacklake.core.operations.statements`.

===========================  ====================================================================
module                       contents
===========================  ====================================================================
:mod:`.merge`                MERGE, with a builder for its clauses
:mod:`.clauses`              DELETE and UPDATE; the rows that a statement changes, and their new values
:mod:`.staged_changes`       finding the positions of changed rows, and changing them in a transaction
:mod:`.task_deletes`         DELETE in tasks that read whole files
===========================  ====================================================================
"""
