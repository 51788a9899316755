"""Engines: they execute scan plans and write files."""
