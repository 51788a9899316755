"""Maintenance of a lake: compaction, expiry, cleanup, verification and backups.

The modules here decide what to do and commit it; an engine writes the files. Everything can run beside writers.
"""
