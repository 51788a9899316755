"""``python -m quacklake.cli``."""

from __future__ import annotations

import sys

from quacklake.cli.app import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
