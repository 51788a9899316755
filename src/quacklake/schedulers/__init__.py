"""Lakes in schedulers: a resource of Dagster."""
