"""Resolve flags, environment, file and defaults to one checked :class:`Config`."""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from quacklake.config.redaction import MASK, redact
from quacklake.config.settings import BY_NAME, SETTINGS, Config, Setting, describe_settings
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
SECTIONS = ("service",)
"""Tables of the settings file that have settings of their own, which ``resolve_section`` reads."""

T = TypeVar("T")
_Layer = Mapping[str, tuple[object, str]]

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
    _warn(unknown_variables(environment) if env is None else {})
    given = _read_layers(BY_NAME, "", flags, environment, _find_file(config_file, environment))
    values, sources = _choose(BY_NAME, given)
    if values["catalog_path"] is not None and _outranks(given, "catalog_path", "url"):
        values["url"] = _derived_url(values["catalog_type"], values["catalog_path"])
        sources["url"] = f"catalog_path ({sources['catalog_path']})"
    if values["postgres_host"] is not None and all(
        _outranks(given, "postgres_host", other) for other in ("url", "catalog_path")
    ):
        values["url"] = _postgres_url(values)
        sources["url"] = f"postgres_host ({sources['postgres_host']})"
    return Config(**values, sources=sources)


def resolve_section(
    table: type[T],
    section: str,
    flags: Mapping[str, object] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    config_file: str | Path | None = None,
) -> T:
    """Return the settings of a product, which are in a table ``[section]`` of the settings file.

    ``table`` is a dataclass whose fields are made by ``setting``, and its variables begin with ``QUACKLAKE_SECTION_``.
    All else is as for ``resolve``.
    """
    environment = os.environ if env is None else env
    known = {each.name: each for each in describe_settings(table, section)}
    _warn(_find_unknown(environment, known.values(), f"{_PREFIX}{section.upper()}_") if env is None else {})
    values, _ = _choose(known, _read_layers(known, section, flags, environment, _find_file(config_file, environment)))
    return table(**values)


def _read_layers(
    known: Mapping[str, Setting],
    section: str,
    flags: Mapping[str, object] | None,
    env: Mapping[str, str],
    path: Path | None,
) -> tuple[_Layer, ...]:
    """Return what is given for settings, with its source, the strongest first."""
    return (
        {name: (value, "flag") for name, value in _check_names(known, flags or {}, "flag") if value is not None},
        dict(_from_environment(known, env)),
        {name: (value, f"file {path}") for name, value in _from_file(known, section, path)} if path else {},
    )


def _choose(known: Mapping[str, Setting], given: tuple[_Layer, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the value of each setting from the strongest layer that has it, and where it comes from."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, setting in known.items():
        values[name], sources[name] = setting.default, "default"
        for layer in given:
            if name in layer:
                raw, source = layer[name]
                values[name], sources[name] = _check_value(setting, raw, source), source
                break
    return values, sources


def unknown_variables(env: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that begin as ours do and name no setting, each with what may be meant.

    >>> unknown_variables({"QUACKLAKE_POL_SIZE": "7", "QUACKLAKE_URL": "x"})
    {'QUACKLAKE_POL_SIZE': 'did you mean "QUACKLAKE_POOL_SIZE"?'}
    """
    sections = tuple(f"{_PREFIX}{section.upper()}_" for section in SECTIONS)
    own = {name: value for name, value in env.items() if name not in _NO_SETTINGS and not name.startswith(sections)}
    return _find_unknown(own, SETTINGS, _PREFIX)


def _find_unknown(env: Mapping[str, str], settings: Iterable[Setting], prefix: str) -> dict[str, str | None]:
    """Return the variables with a prefix that name none of some settings, each with what may be meant."""
    known = {name for setting in settings for name in setting.env if name.startswith(prefix)}
    rests = [name.removeprefix(prefix) for name in known]
    unknown = {}
    for name in sorted(env):
        if name.upper().startswith(prefix) and name not in known and not name.startswith(f"{_PREFIX}TEST_"):
            near = get_close_matches(name.upper().removeprefix(prefix), rests, n=1, cutoff=0.7)
            unknown[name] = f'did you mean "{prefix}{near[0]}"?' if near else None
    return unknown


def _warn(unknown: Mapping[str, str | None]) -> None:
    """Log variables that are not settings, each once."""
    for name, meant in unknown.items():
        if name not in TOLD:
            TOLD.add(name)
            _log.warning("the variable %s is not a setting and has no effect%s", name, f": {meant}" if meant else "")


def _outranks(given: tuple[_Layer, ...], name: str, other: str) -> bool:
    """True when ``name`` is set in a stronger layer than ``other``."""
    for layer in given:
        if other in layer:
            return False
        if name in layer:
            return True
    return False


def _check_names(known: Mapping[str, Setting], raw: Mapping[str, object], where: str) -> Iterator[tuple[str, object]]:
    for name, value in raw.items():
        if name not in known:
            raise ConfigError(f'unknown setting "{name}" ({where})', hint=nearest(name, known))
        yield name, value


def _from_environment(known: Mapping[str, Setting], env: Mapping[str, str]) -> Iterator[tuple[str, tuple[object, str]]]:
    for setting in known.values():
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


def _from_file(known: Mapping[str, Setting], section: str, path: Path) -> Iterator[tuple[str, object]]:
    """Yield the settings of a table of the file, or those that are in no table of a product."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    if section:
        content = content.get(section, {})
        if not isinstance(content, dict):
            raise ConfigError(f"{section} is a table ({path})", hint=f"write [{section}] and settings below it")
    own = {key: value for key, value in content.items() if section or key not in SECTIONS}
    yield from _check_names(known, dict(_flatten(own)), f"file {path}")


def _flatten(content: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and name not in _TABLES:
            yield from _flatten(value, f"{name}_")
        else:
            yield name, value


def _check_value(setting: Setting, raw: object, source: str) -> object:
    shown = MASK if setting.secret else f'"{redact(str(raw))}"'
    try:
        value = PARSERS[setting.kind](raw)
    except ValueError as error:
        raise ConfigError(f"{setting.name} = {shown} ({source}): {error}") from None
    if setting.choices and value not in setting.choices:
        hint = f"use one of: {', '.join(setting.choices)}"
        raise ConfigError(f"{setting.name} = {shown} ({source}) is not a valid value", hint=hint)
    _check_limits(setting, value, f"{setting.name} = {shown} ({source})")
    return value


def _check_limits(setting: Setting, value: object, shown: str) -> None:
    size = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(size, int | float) and not isinstance(size, bool):
        for limit, word in ((setting.minimum, "least"), (setting.maximum, "most")):
            if limit is not None and (size < limit if word == "least" else size > limit):
                raise ConfigError(f"{shown} must be at {word} {limit:,}")


def check_table(table: Any) -> None:
    """Raise ``ConfigError`` for a setting that is beyond its limits, in a table that a program has made."""
    for setting in describe_settings(type(table)):
        value = getattr(table, setting.name)
        _check_limits(setting, value, f"{setting.name} = {value}")


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
