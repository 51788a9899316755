"""Translate expressions of the lake into Spark SQL with the same values."""
