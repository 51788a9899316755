"""Benchmarks: Quacklake and its peers, measured in turn in one run on one machine.

``python -m benchmarks --list`` tells what there is, ``README.md`` how to repeat the published figures.
"""
