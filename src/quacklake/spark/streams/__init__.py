"""Spark streams into a table and out of one.

========================  =======================================================================
module                    contents
========================  =======================================================================
:mod:`.pipeline`          from one table through a query into another
:mod:`.connect_streams`   streams of Spark Connect into a table
:mod:`.sink`              the batches of a stream into a table, each committed once
:mod:`.keyed_merges`      large batches with keys, merged on executors
:mod:`.change_rows`       small batches with keys, merged in this process
:mod:`.feed`              the rows of a stream out of a table
:mod:`.source`            the positions of a stream out of a table
:mod:`.options`           checks of the options of streams
========================  =======================================================================
"""
