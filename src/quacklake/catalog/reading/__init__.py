"""Reading metadata, one module for each kind of thing; ``Reader`` has them all."""
