"""Spark streams into a table and out of one."""
