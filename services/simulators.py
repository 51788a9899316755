"""Simulators of the services that a pond collects from, each in a process of its own."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from services.process import ConfiguredServer

__all__ = ["HydroVuServer", "LakeTechServer"]


class _SimulatorServer(ConfiguredServer):
    """A simulator of the package ``quacklake-sensors``; ``settings`` are those of its dataclass."""

    module: ClassVar[str]
    scheme = "http"

    def prepare(self) -> None:
        """Nothing has to be made: a simulator has no files."""

    def command(self) -> Sequence[str | Path]:
        settings = json.dumps(self.settings)
        return [sys.executable, "-m", self.module, "--port", str(self.port), "--settings", settings]

    def ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False


class HydroVuServer(_SimulatorServer):
    """HydroVu: tokens, friendly names, locations and pages of readings."""

    name = "hydrovu"
    module = "quacklake_sensors.simulators.hydrovu"


class LakeTechServer(_SimulatorServer):
    """LakeTech: an inbox of CSV files and reports in HTML."""

    name = "laketech"
    module = "quacklake_sensors.simulators.laketech"
