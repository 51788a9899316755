"""Writing metadata, one module for each subject; ``Writer`` holds them all."""
