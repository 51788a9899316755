"""A Spark session as the others need it: versions, settings, types, errors, jobs on executors."""
