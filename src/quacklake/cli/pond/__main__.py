"""``python -m quacklake.cli.pond``."""

from quacklake.cli.pond import run

run()
