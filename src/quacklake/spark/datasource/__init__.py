"""``format("quacklake")``: Spark's interface for Python data sources and sinks.

======================  =========================================================================
module                  contents
======================  =========================================================================
:mod:`.registration`    registering the format with sessions
:mod:`.format`          the format in one session, and the socket that answers questions
:mod:`.source_classes`  the classes that Spark copies to its own processes
:mod:`.driver_service`  answers to the questions of those processes
:mod:`.table_sink`      committing rows that came through the interface
:mod:`.filters`         filters that Spark pushes down
:mod:`.remote`          streams that a Spark Connect server reads by the URL of a lake
:mod:`.options`         the options of the format
======================  =========================================================================
"""
