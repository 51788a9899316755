"""Migrations from one version of the format to another."""
