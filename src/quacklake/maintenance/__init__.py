"""Keeping a lake in shape: compaction, expiry, cleaning up, verification.

A module here decides what is to be done and commits it; an engine writes the files. Everything runs beside writers.
"""
