"""The place of a pond: a folder, the URL of a database, or a YAML file that names both of its lakes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from quacklake.catalog import parse_url
from quacklake.config import redact
from quacklake.config.mappings import Options
from quacklake.connectors.options import resolved
from quacklake.errors import ConfigError, NotFoundError
from quacklake.lake.connect import connect
from quacklake.lake.lake import Lake

DATA, CONTROL = "data", "control"
"""The lakes of a pond: its own, and that of the log of commands."""
_PLAIN = ""
"""The lakes of a pond are its own: a catalog that the settings name is one of another lake."""
_FILES = (".yaml", ".yml")
_CONTROL_SCHEMA = "pond_control"


@dataclass(frozen=True, slots=True)
class LakePlace:
    """The catalog of a lake, and where its files go when it is created. ``moves``: both are in one folder."""

    url: str
    data_path: str | None
    moves: bool = False

    def create(self, **settings: Any) -> Lake:
        """Open the lake, or create it. Raises ``ConfigError`` when there is neither a lake nor a data path."""
        self.make_folder()
        return connect(self.url, self.data_path, catalog=_PLAIN, **settings)

    def make_folder(self) -> None:
        """Make the folder of a catalog that is a file."""
        path = parse_url(self.url).path
        if path is not None:
            path.absolute().parent.mkdir(parents=True, exist_ok=True)

    def open(self, *, read_only: bool = False, **settings: Any) -> Lake:
        """Open the lake. Raises ``NotFoundError``."""
        # a folder may have been moved or copied since: its files are those in it
        return connect(
            self.url,
            self.data_path if self.moves else None,
            catalog=_PLAIN,
            create=False,
            override_data_path=self.moves,
            read_only=read_only,
            **settings,
        )


@dataclass(frozen=True, slots=True)
class PondPlace:
    """The two lakes of a pond; ``name`` is the place as people write it, without secrets."""

    name: str
    data: LakePlace
    control: LakePlace

    def missing(self) -> NotFoundError:
        """Return the error for a place without a pond."""
        return NotFoundError("Pond does not exist. Run 'pond init' first.", hint=self.name)

    def may_exist(self) -> bool:
        """Return whether there can be a pond: false when the file of its catalog is missing."""
        path = parse_url(self.data.url).path
        return path is None or path.exists()


def find(place: str | Path | PondPlace) -> PondPlace:
    """Return the place of a pond. Raises ``ConfigError`` for one that cannot be.

    It is a folder, the URL of a database such as ``postgresql://host/db?data_path=s3://bucket/pond``, or a YAML file
    with ``url`` and ``data_path``, and ``control_url`` and ``control_data_path`` if they are elsewhere.
    """
    if isinstance(place, PondPlace):
        return place
    text = str(place)
    if isinstance(place, str) and "://" in text:
        return _at_url(text, None)
    if Path(text).suffix.lower() in _FILES and not Path(text).is_dir():
        return _of_file(Path(text))
    folder = Path(text).absolute()
    return PondPlace(text, _below(folder / DATA), _below(folder / CONTROL))


def _below(folder: Path) -> LakePlace:
    return LakePlace(f"sqlite:///{folder / 'lake.db'}", str(folder / "files"), moves=True)


def _at_url(text: str, data_path: str | None) -> PondPlace:
    parsed = parse_url(text)
    if parsed.catalog is not None:
        raise ConfigError(f"{redact(text)} names a catalog of a shared lake", hint="a pond has a database of its own")
    root = (data_path or parsed.data_path or "").rstrip("/") or None
    url = sa.make_url(text.removeprefix("ducklake:")) if "://" in text else parsed.url
    url = url.difference_update_query(["data_path"])
    return PondPlace(
        redact(text),
        LakePlace(_text(url), None if root is None else f"{root}/{DATA}"),
        LakePlace(_text(_control(url, parsed.database)), None if root is None else f"{root}/{CONTROL}"),
    )


def _text(url: sa.URL) -> str:
    return url.render_as_string(hide_password=False)


def _control(url: sa.URL, database: str) -> sa.URL:
    """Return the catalog of the log: another schema in PostgreSQL, another database elsewhere."""
    if database == "postgres":
        return url.update_query_dict({"metadata_schema": _CONTROL_SCHEMA})
    name = str(url.database or "")
    if database == "mysql":
        return url.set(database=f"{name}_{CONTROL}")
    path = Path(name)
    return url.set(database=str(path.with_name(f"{path.stem}-{CONTROL}{path.suffix}")))


def _of_file(path: Path) -> PondPlace:
    import yaml

    try:
        options = Options(f"the file {path.name}", yaml.safe_load(path.read_text("utf-8")))
    except OSError as error:
        raise ConfigError(f"the file {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file {path} is not valid YAML: {' '.join(str(error).split())}") from None
    url, data_path = (resolved(options.text(key), key) for key in ("url", "data_path"))
    control_url, control_path = (
        resolved(options.text(key, ""), key) or None for key in ("control_url", "control_data_path")
    )
    options.finish()
    found = _at_url(url, data_path)
    control = LakePlace(control_url or found.control.url, control_path or found.control.data_path)
    return PondPlace(str(path), found.data, control)
