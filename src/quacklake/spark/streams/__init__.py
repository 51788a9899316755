"""Streams of Spark into a table and out of one.

=====================  ==========================================================================
module                 what it holds
=====================  ==========================================================================
:mod:`.pipeline`       from one table through a query into another
:mod:`.connect`        streams of Spark Connect into a table
:mod:`.sink`           batches on their way into a table, each committed once
:mod:`.keyed_merges`   large batches by their keys, merged by executors
:mod:`.changes`        the others, merged in this process
:mod:`.feed`           the rows of a stream out of a table
:mod:`.source`         where such a stream starts, and how far it can go
:mod:`.options`        what the options of streams may be
=====================  ==========================================================================
"""
