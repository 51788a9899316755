"""Spark SQL over a lake: names of the lake become DataFrames, and changes go through the lake."""
