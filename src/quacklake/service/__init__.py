"""Serve lakes to other programs: HTTP, Arrow Flight SQL and an Iceberg REST catalog."""
