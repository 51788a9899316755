"""``python -m quacklake.cli``."""

from __future__ import annotations

from quacklake.cli.app import run

__all__: list[str] = []

if __name__ == "__main__":
    run()
