"""From one version of the format to another."""
