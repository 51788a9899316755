"""Resolve flags, environment, file and defaults to one checked :class:`Config`."""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import quote

from quacklake.config.redaction import MASK, redact
from quacklake.config.settings import BY_NAME, SETTINGS, Config, Setting
from quacklake.config.values import PARSERS
from quacklake.errors import ConfigError, nearest

CONFIG_FILE = "quacklake.toml"
_PREFIX = "QUACKLAKE_"
_NO_SETTINGS = ("QUACKLAKE_CONFIG", "QUACKLAKE_FAULT", "QUACKLAKE_REHEARSE", "QUACKLAKE_YARDSTICK")
"""Our variables that are not settings; those of tests begin with ``QUACKLAKE_TEST_``."""

_IN_MEGABYTES = "_MB"
"""The end of variables whose numbers are megabytes."""
_TABLES = ("stores",)
"""Settings that are tables themselves, and not the beginning of names."""

_log = logging.getLogger("quacklake.config")
TOLD: set[str] = set()
"""Unknown variables that were reported already."""


def resolve(
    flags: Mapping[str, object] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    config_file: str | Path | None = None,
) -> Config:
    """Return every setting: flag > environment > ``quacklake.toml`` > default.

    A flag of ``None`` and an empty variable count as not given. The file is ``config_file``, else ``quacklake.toml`` in
    the current directory, else the one that ``QUACKLAKE_CONFIG`` names. Raise ``ConfigError`` on an unknown name, a
    wrong value and a file that cannot be read. An unknown variable that looks like one of ours is logged, once.
    """
    environment = os.environ if env is None else env
    for name, meant in unknown_variables(environment).items() if env is None else ():
        if name not in TOLD:
            TOLD.add(name)
            _log.warning("the variable %s is not a setting and has no effect%s", name, f": {meant}" if meant else "")
    path = _find_file(config_file, environment)
    given: tuple[Mapping[str, tuple[object, str]], ...] = (
        {name: (value, "flag") for name, value in _known(flags or {}, "flag") if value is not None},
        dict(_from_environment(environment)),
        {name: (value, f"file {path}") for name, value in _from_file(path)} if path else {},
    )
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in SETTINGS:
        values[setting.name], sources[setting.name] = setting.default, "default"
        for layer in given:
            if setting.name in layer:
                raw, source = layer[setting.name]
                values[setting.name], sources[setting.name] = _checked(setting, raw, source), source
                break
    if values["catalog_path"] is not None and _outranks(given, "catalog_path", "url"):
        values["url"] = _derived_url(values["catalog_type"], values["catalog_path"])
        sources["url"] = f"catalog_path ({sources['catalog_path']})"
    if values["postgres_host"] is not None and all(
        _outranks(given, "postgres_host", other) for other in ("url", "catalog_path")
    ):
        values["url"] = _postgres_url(values)
        sources["url"] = f"postgres_host ({sources['postgres_host']})"
    return Config(**values, sources=sources)


def unknown_variables(env: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that begin as ours do and name no setting, each with what may be meant.

    >>> unknown_variables({"QUACKLAKE_POL_SIZE": "7", "QUACKLAKE_URL": "x"})
    {'QUACKLAKE_POL_SIZE': 'did you mean "QUACKLAKE_POOL_SIZE"?'}
    """
    settings = {name for setting in SETTINGS for name in setting.env if name.startswith(_PREFIX)}
    ours = sorted(name for name in env if name.upper().startswith(_PREFIX))
    rests = [setting.removeprefix(_PREFIX) for setting in settings]
    unknown = {}
    for name in ours:
        if name not in settings and name not in _NO_SETTINGS and not name.startswith(f"{_PREFIX}TEST_"):
            near = get_close_matches(name.upper().removeprefix(_PREFIX), rests, n=1, cutoff=0.7)
            unknown[name] = f'did you mean "{_PREFIX}{near[0]}"?' if near else None
    return unknown


def _outranks(given: tuple[Mapping[str, tuple[object, str]], ...], name: str, other: str) -> bool:
    """True when ``name`` is set in a stronger layer than ``other``."""
    for layer in given:
        if other in layer:
            return False
        if name in layer:
            return True
    return False


def _known(raw: Mapping[str, object], where: str) -> Iterator[tuple[str, object]]:
    for name, value in raw.items():
        if name not in BY_NAME:
            raise ConfigError(f'unknown setting "{name}" ({where})', hint=nearest(name, BY_NAME))
        yield name, value


def _from_environment(env: Mapping[str, str]) -> Iterator[tuple[str, tuple[object, str]]]:
    for setting in SETTINGS:
        for variable in setting.env:
            if env.get(variable):
                text = env[variable]
                if variable.endswith(_IN_MEGABYTES) and text.strip().isdecimal():
                    text = f"{text.strip()}MB"
                yield setting.name, (text, f"environment {variable}")
                break


def _find_file(config_file: str | Path | None, env: Mapping[str, str]) -> Path | None:
    if config_file is not None:
        return Path(config_file)
    if Path(CONFIG_FILE).is_file():
        return Path(CONFIG_FILE)
    return Path(env["QUACKLAKE_CONFIG"]) if env.get("QUACKLAKE_CONFIG") else None


def _from_file(path: Path) -> Iterator[tuple[str, object]]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    yield from _known(dict(_flattened(content)), f"file {path}")


def _flattened(content: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and name not in _TABLES:
            yield from _flattened(value, f"{name}_")
        else:
            yield name, value


def _checked(setting: Setting, raw: object, source: str) -> object:
    shown = MASK if setting.secret else f'"{redact(str(raw))}"'
    try:
        value = PARSERS[setting.kind](raw)
    except ValueError as error:
        raise ConfigError(f"{setting.name} = {shown} ({source}): {error}") from None
    if setting.choices and value not in setting.choices:
        hint = f"use one of: {', '.join(setting.choices)}"
        raise ConfigError(f"{setting.name} = {shown} ({source}) is not a valid value", hint=hint)
    size = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(size, int | float) and not isinstance(size, bool):
        for limit, word in ((setting.minimum, "least"), (setting.maximum, "most")):
            if limit is not None and (size < limit if word == "least" else size > limit):
                raise ConfigError(f"{setting.name} = {shown} ({source}) must be at {word} {limit:,}")
    return value


def _derived_url(catalog_type: str, path: str) -> str:
    if "://" in path:
        return path
    if catalog_type in {"sqlite", "duckdb"}:
        return f"{catalog_type}:///{path}"
    scheme = "postgresql" if catalog_type == "postgres" else catalog_type
    if "=" not in path:
        return f"{scheme}://{path}"
    parts = _parse_dsn(path)
    user, password = quote(parts.get("user", ""), safe=""), quote(parts.get("password", ""), safe="")
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    host = parts.get("host", parts.get("hostaddr", ""))
    port = f":{parts['port']}" if "port" in parts else ""
    return f"{scheme}://{login}{host}{port}/{quote(parts.get('dbname', ''), safe='')}"


def _postgres_url(values: Mapping[str, Any]) -> str:
    user, password, database = values["postgres_user"], values["postgres_password"], values["postgres_database"]
    login = "" if user is None else quote(user, safe="")
    if password is not None:
        login += f":{quote(password.reveal(), safe='')}"
    host, port = values["postgres_host"], values["postgres_port"]
    host = f"[{host}]" if ":" in host else host
    return f"postgresql://{login}{'@' if login else ''}{host}:{port}/{quote(database or '', safe='')}"


_DSN_PAIR = re.compile(r"\s*(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)*))(?=\s|\Z)")
_DSN_KEYS = ("user", "password", "host", "hostaddr", "port", "dbname")


def _parse_dsn(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _DSN_PAIR.match(text, position)
        if match is None or match[1] not in _DSN_KEYS:
            hint = f"use key=value pairs of {', '.join(_DSN_KEYS)}, or set url"
            raise ConfigError(f'catalog_path "{redact(text)}" is not a connection string', hint=hint)
        parts[match[1]] = re.sub(r"\\(.)", r"\1", match[2] if match[2] is not None else match[3])
        position = match.end()
    return parts
