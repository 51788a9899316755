"""Queries that hold the metadata against the rules of the format, and the repairs."""
