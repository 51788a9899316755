"""A lake in Spark. The driver alone speaks to the catalog, executors read and write files."""
