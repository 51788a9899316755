"""Collectors of a Quacklake pond for the sensors of HydroVu and LakeTech, and simulators to try them on."""
