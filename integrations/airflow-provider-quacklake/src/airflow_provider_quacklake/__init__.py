"""Airflow for a Quacklake lake: a connection type, a hook, operators and assets."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def get_provider_info() -> dict[str, Any]:
    """Return what Airflow asks a provider: its connection types, modules and the URIs of its assets."""
    package = "airflow_provider_quacklake"
    integration = {"integration-name": "Quacklake"}
    return {
        "package-name": "airflow-provider-quacklake",
        "name": "Quacklake",
        "description": "A lakehouse for Python: Parquet files and a SQL catalog.",
        "versions": [__version__],
        "integrations": [integration | {"external-doc-url": "", "tags": ["software"]}],
        "connection-types": [
            {
                "hook-class-name": f"{package}.hooks.QuacklakeHook",
                "hook-name": "Quacklake",
                "connection-type": "quacklake",
                "ui-field-behaviour": {
                    "hidden-fields": ["port", "schema"],
                    "relabeling": {"host": "URL of the lake", "password": "Password or token"},
                    "placeholders": {
                        "host": "postgresql://db.example/lakes or https://lake.example",
                        "extra": '{"data_path": "s3://bucket/lake", "catalog": "acme"}',
                    },
                },
            },
        ],
        "hooks": [integration | {"python-modules": [f"{package}.hooks"]}],
        "operators": [integration | {"python-modules": [f"{package}.operators"]}],
        "asset-uris": [{"schemes": ["quacklake"], "handler": f"{package}.assets.sanitize_uri"}],
    }
