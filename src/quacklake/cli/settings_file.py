"""``quacklake.toml`` as a program writes it: one line changes, everything else stays as it is."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from quacklake.config import SETTINGS, Setting, resolve
from quacklake.errors import ConfigError, NotFoundError, nearest

__all__ = ["FILE", "find_setting", "set_value", "unset_value"]

FILE = "quacklake.toml"

_BARE = ("int", "float", "bool")
_SECTION = re.compile(r"\s*\[([^\[\]]+)\]")


def find_setting(name: str) -> Setting:
    """A setting by its name. Raises ``NotFoundError``."""
    known = {setting.name: setting for setting in SETTINGS}
    if name not in known:
        raise NotFoundError(f'there is no setting "{name}"', hint=nearest(name, known))
    return known[name]


def set_value(path: Path, name: str, value: str) -> None:
    """Write a setting into a file, which is made when it is missing. Raises ``ConfigError`` for a bad value."""
    setting = find_setting(name)
    resolve({name: value}, env={}, config_file=path if path.exists() else None)
    bare = setting.kind in _BARE and re.fullmatch(r"-?\d+(\.\d+)?|true|false", value.strip()) is not None
    written = value.strip() if bare else json.dumps(value, ensure_ascii=False)
    lines = _lines(path)
    place = _place(lines, name)
    if place is None:
        lines.insert(_end_of_top(lines), f"{name} = {written}")
    else:
        number, key = place
        lines[number] = f"{key} = {written}"
    _write(path, lines, private=setting.secret)


def unset_value(path: Path, name: str) -> bool:
    """Take a setting out of a file; False when it was not in it."""
    find_setting(name)
    lines = _lines(path)
    place = _place(lines, name)
    if place is None:
        return False
    del lines[place[0]]
    _write(path, lines)
    return True


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _place(lines: list[str], name: str) -> tuple[int, str] | None:
    """The line that sets it, and the key as it is written there: ``[s3]`` and ``endpoint`` mean ``s3_endpoint``."""
    prefix = ""
    for number, line in enumerate(lines):
        section = _SECTION.match(line)
        if section is not None:
            prefix = section[1].strip().replace(".", "_") + "_"
            continue
        key, equals, _ = line.partition("=")
        if equals and not key.lstrip().startswith("#") and prefix + key.strip().strip('"') == name:
            return number, key.strip()
    return None


def _end_of_top(lines: list[str]) -> int:
    """Before the first section, behind what stands above it."""
    first = next((number for number, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    while first > 0 and not lines[first - 1].strip():
        first -= 1
    return first


def _write(path: Path, lines: list[str], *, private: bool = False) -> None:
    text = "\n".join(lines) + "\n" if lines else ""
    try:
        tomllib.loads(text)
    except ValueError:
        raise ConfigError(f"{path} has this setting over several lines", hint="change it with an editor") from None
    if private:
        path.touch(mode=0o600)
        path.chmod(0o600)
    path.write_text(text, encoding="utf-8")
