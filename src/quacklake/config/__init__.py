"""Settings: tables of them, one resolver, and secrets that never print.

A setting comes from, in this order: an explicit flag or keyword, the environment, ``quacklake.toml``, its default::

    config = resolve({"url": "sqlite:///lake.db"})
    config.pool_size  # 5
    config.describe()  # what every setting is and where it came from, secrets masked

A product has a table of its own: a dataclass of ``setting`` fields, which ``resolve_section`` fills.
"""

from quacklake.config.redaction import carries_secret, redact, redact_message, redact_statement
from quacklake.config.resolver import check_table, resolve, resolve_section, unknown_variables
from quacklake.config.settings import SETTINGS, Config, ConfigRow, Setting, describe_settings, setting
from quacklake.config.values import Secret, StoreOptions, Stores, parse_duration, parse_size

__all__ = [
    "SETTINGS",
    "Config",
    "ConfigRow",
    "Secret",
    "Setting",
    "StoreOptions",
    "Stores",
    "carries_secret",
    "check_table",
    "describe_settings",
    "parse_duration",
    "parse_size",
    "redact",
    "redact_message",
    "redact_statement",
    "resolve",
    "resolve_section",
    "setting",
    "unknown_variables",
]
