"""``format("quacklake")``: Spark's interface for sources and sinks in Python.

====================  ===========================================================================
module                what it holds
====================  ===========================================================================
:mod:`.registration`  making the format known to sessions
:mod:`.format`        the format in one session, and the socket where it is asked
:mod:`.classes`       the classes that Spark copies to its own processes
:mod:`.desk`          answers to what those ask
:mod:`.table_sink`    rows that came through the interface, on their way into a table
:mod:`.filters`       filters that Spark pushes down
:mod:`.remote`        streams that a server of Spark Connect reads by the URL of a lake
:mod:`.options`       the options of the format
====================  ===========================================================================
"""
