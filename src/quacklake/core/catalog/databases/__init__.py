"""The databases that hold metadata: one module for each, and the connections to them."""
