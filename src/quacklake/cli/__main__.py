"""``python -m quacklake.cli``."""

from quacklake.cli.app import run

if __name__ == "__main__":
    run()
