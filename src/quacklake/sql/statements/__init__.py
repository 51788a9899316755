"""The statements, each kind in a module of its own."""
