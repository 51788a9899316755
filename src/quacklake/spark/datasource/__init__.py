"""``format("quacklake")``: Spark's interface for Python data sources and sinks."""
