"""DataFrames as the files of a table."""
