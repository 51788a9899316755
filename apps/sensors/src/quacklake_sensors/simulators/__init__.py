"""Simulators of the services that collectors read: real HTTP servers on loopback, for tests, demos and benchmarks."""

from quacklake_sensors.simulators.hydrovu import HydroVuSettings, HydroVuSimulator
from quacklake_sensors.simulators.laketech import LakeTechSettings, LakeTechSimulator

__all__ = ["HydroVuSettings", "HydroVuSimulator", "LakeTechSettings", "LakeTechSimulator"]
