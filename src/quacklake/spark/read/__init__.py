"""Scan plans as DataFrames."""
