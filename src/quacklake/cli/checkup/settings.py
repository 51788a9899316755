"""Check for conflicting settings, files that others can read, and misspelt variables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from quacklake.cli.checkup.findings import CheckResult
from quacklake.config import redact, unknown_variables
from quacklake.config.resolver import TOLD

if TYPE_CHECKING:
    from quacklake.config import Config


def check_variables() -> Iterator[CheckResult]:
    """Yield the variables that look like settings but are not."""
    for name, meant in unknown_variables(os.environ).items():
        TOLD.add(name)
        fix = meant or "unset it, or see `quacklake config show` for what there is"
        yield CheckResult("settings", name, "warning", "the variable is no setting, and has no effect", fix)


def check_settings(config: Config) -> Iterator[CheckResult]:
    """Yield the settings that are set, and what is wrong with them."""
    chosen = sorted(name for name, source in config.sources.items() if source != "default")
    yield CheckResult("settings", "settings", "ok", f"set: {', '.join(chosen) or 'none'}")
    if (config.s3_access_key is None) != (config.s3_secret_key is None):
        missing = "s3_secret_key" if config.s3_secret_key is None else "s3_access_key"
        yield CheckResult(
            "settings", missing, "failed", "one S3 key without the other", f"quacklake config set {missing}"
        )
    if config.s3_endpoint is not None and config.s3_endpoint.startswith("http://") and config.s3_secure:
        fix = "quacklake config set s3_secure false"
        yield CheckResult("settings", "s3_secure", "warning", "the endpoint speaks HTTP, and HTTPS is asked for", fix)
    file = Path("quacklake.toml")
    secrets = _secrets_in(config)
    if file.is_file() and file.stat().st_mode & 0o077 and secrets:
        detail = f"others can read it, and it has {', '.join(secrets)}"
        yield CheckResult("settings", str(file), "warning", detail, f"chmod 600 {file}")


def _secrets_in(config: Config) -> list[str]:
    """Return the secrets that come from a file."""
    secrets = ["s3_access_key", "s3_secret_key", "s3_session_token", "stores", "postgres_password"]
    if config.url is not None and redact(config.url) != config.url:
        secrets.append("url")
    return [name for name in secrets if config.sources[name].startswith("file")]
