"""DuckLake as pure functions and data: no input and no output."""
