"""Writing metadata, one module for each kind of thing; ``Writer`` has them all."""
