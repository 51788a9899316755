"""Basics for working with a Spark session: versions, settings, types, errors, jobs on executors."""
