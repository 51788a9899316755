"""Reading metadata, one module for each subject; ``Reader`` holds them all."""
