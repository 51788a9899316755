"""Write DataFrames as files of a table."""
