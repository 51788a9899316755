"""The core: the format, its metadata and files, plans and commits, SQL, and upkeep."""
