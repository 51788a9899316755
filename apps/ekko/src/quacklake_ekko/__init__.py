"""Ekko's transactions of blockchains in a lake: written from NATS, moved from Arrow files, read by its dashboard.

==================  ====================================================================================
``transactions``    the table ``blockchain.transactions``, and ``DuckLakeWriter``, which fills it
``nats_writer``     ``run_writer``: from a stream of NATS into the table
``settings``        ``WriterSettings``: the variables of Ekko's pipeline
``service``         ``DuckLakeService``: what Ekko's dashboard asks for, in Python
``routes``          the same over HTTP, as a part of ``quacklake serve``
``migration``       from Ekko's old Arrow files to the table
``simulator``       blocks of transactions as a node sends them, for tests and demos
==================  ====================================================================================
"""
