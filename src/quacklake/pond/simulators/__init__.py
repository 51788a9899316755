"""Simulators of the services that collectors read: real HTTP servers on loopback, for tests, demos and benchmarks."""

from quacklake.pond.simulators.hydrovu import HydroVuSettings, HydroVuSimulator
from quacklake.pond.simulators.laketech import LakeTechSettings, LakeTechSimulator

__all__ = ["HydroVuSettings", "HydroVuSimulator", "LakeTechSettings", "LakeTechSimulator"]
