"""SQL statements, one module for each kind."""
