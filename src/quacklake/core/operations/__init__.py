"""Read and change tables: the context of an open lake, the handles on its states, and the operations."""
