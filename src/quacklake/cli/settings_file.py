"""Edit ``quacklake.toml``: change one setting and keep everything else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quacklake.config import SETTINGS, Setting, resolve
from quacklake.errors import ConfigError, NotFoundError, nearest

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

FILE = "quacklake.toml"

_BARE = ("int", "float", "bool")


def find_setting(name: str) -> Setting:
    """Return a setting by its name. Raises ``NotFoundError`` when there is no such setting."""
    known = {setting.name: setting for setting in SETTINGS}
    if name not in known:
        raise NotFoundError(f'there is no setting "{name}"', hint=nearest(name, known))
    return known[name]


def set_value(path: Path, name: str, value: str) -> None:
    """Write a setting into a file, which is created when it is missing. Raises ``ConfigError`` for a bad value."""
    setting = find_setting(name)
    config = resolve({name: value}, env={}, config_file=path if path.exists() else None)
    document = _read(path)
    table, key = _place(document, name) or (document, name)
    table[key] = getattr(config, name) if setting.kind in _BARE else value
    _write(path, document, private=setting.secret)


def unset_value(path: Path, name: str) -> bool:
    """Remove a setting from a file. Return False when it was not in it."""
    find_setting(name)
    document = _read(path)
    place = _place(document, name)
    if place is None:
        return False
    table, key = place
    del table[key]
    _write(path, document)
    return True


def _read(path: Path) -> TOMLDocument:
    import tomlkit  # imported here, since most commands write no settings

    try:
        return tomlkit.parse(path.read_text(encoding="utf-8") if path.exists() else "")
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _place(table: dict[str, Any], name: str) -> tuple[dict[str, Any], str] | None:
    """Return the table that holds a setting, and its key there: ``endpoint`` of ``[s3]`` is ``s3_endpoint``."""
    for key, value in table.items():
        if key == name:
            return table, key
        if isinstance(value, dict) and name.startswith(f"{key}_"):
            place = _place(value, name.removeprefix(f"{key}_"))
            if place is not None:
                return place
    return None


def _write(path: Path, document: TOMLDocument, *, private: bool = False) -> None:
    if private:
        path.touch(mode=0o600)
        path.chmod(0o600)
    path.write_text(document.as_string(), encoding="utf-8")
