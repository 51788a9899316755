"""The checks of ``quacklake doctor``: the installation, extras, Spark, the settings, the catalog and the files."""

from __future__ import annotations

from quacklake import telemetry
from quacklake.cli.checkup.findings import CheckResult, bounded
from quacklake.cli.checkup.installation import check_extras, check_installation, needed_extras
from quacklake.cli.checkup.lake import check_lake
from quacklake.cli.checkup.settings import check_settings, check_variables
from quacklake.cli.checkup.spark import check_spark
from quacklake.cli.context import Context
from quacklake.errors import ConfigError

__all__ = ["CheckResult", "checkup"]


def checkup(context: Context) -> list[CheckResult]:
    """Return the results of all checks. No check takes longer than a few seconds."""
    misspelt = list(check_variables())  # first, so that no other check reports them
    found = [*check_installation(), *check_extras(needed_extras(context))]
    found += bounded("Spark", "Java", lambda: list(check_spark()))
    found += misspelt
    try:
        config = context.config
    except ConfigError as error:
        fix = error.hint or "correct it, `quacklake config show` lists all settings"
        return [*found, CheckResult("settings", "settings", "failed", error.message, fix)]
    telemetry.configure_logging(config.log_level, config.log_format)
    return [*found, *check_settings(config), *check_lake(context)]
