"""The place of a pond: a folder, the URL of a database, or a YAML file that names its lake."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from quacklake.config import redact
from quacklake.config.mappings import Options
from quacklake.connectors.options import resolved
from quacklake.errors import ConfigError, NotFoundError
from quacklake.extend.inputs import parse_url
from quacklake.lake.connect import connect
from quacklake.lake.lake import Lake

DATA = "data"
"""The folder of the lake in the folder of a pond, and of its files below a data path."""
_PLAIN = ""
"""The lake of a pond is its own: a catalog that the settings name is one of another lake."""
_FILES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class LakePlace:
    """The catalog of a lake, and where its files go when it is created. ``moves``: both are in one folder."""

    url: str
    data_path: str | None
    moves: bool = False

    def create(self, **settings: Any) -> Lake:
        """Open the lake, or create it. Raise ``ConfigError`` when there is neither a lake nor a data path."""
        self.make_folder()
        return connect(self.url, self.data_path, catalog=_PLAIN, **settings)

    def make_folder(self) -> None:
        """Make the folder of a catalog that is a file."""
        path = parse_url(self.url).path
        if path is not None:
            path.absolute().parent.mkdir(parents=True, exist_ok=True)

    def open(self, *, read_only: bool = False, **settings: Any) -> Lake:
        """Open the lake. Raise ``NotFoundError``."""
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
    """The lake of a pond; ``name`` is the place as people write it, without secrets."""

    name: str
    lake: LakePlace

    def missing(self) -> NotFoundError:
        """Return the error for a place without a pond."""
        return NotFoundError("Pond does not exist. Run 'pond init' first.", hint=self.name)

    def may_exist(self) -> bool:
        """Return whether there can be a pond: false when the file of its catalog is missing."""
        path = parse_url(self.lake.url).path
        return path is None or path.exists()


def find(place: str | Path | PondPlace) -> PondPlace:
    """Return the place of a pond. Raise ``ConfigError`` for one that cannot be.

    It is a folder, the URL of a database such as ``postgresql://host/db?data_path=s3://bucket/pond``, or a YAML file
    with ``url`` and ``data_path``.
    """
    if isinstance(place, PondPlace):
        return place
    text = str(place)
    if isinstance(place, str) and "://" in text:
        return _at_url(text, None)
    if Path(text).suffix.lower() in _FILES and not Path(text).is_dir():
        return _of_file(Path(text))
    folder = Path(text).absolute()
    return PondPlace(text, _below(folder / DATA))


def _below(folder: Path) -> LakePlace:
    return LakePlace(f"sqlite:///{folder / 'lake.db'}", str(folder / "files"), moves=True)


def _at_url(text: str, data_path: str | None) -> PondPlace:
    parsed = parse_url(text)
    if parsed.catalog is not None:
        raise ConfigError(f"{redact(text)} names a catalog of a shared lake", hint="a pond has a database of its own")
    root = (data_path or parsed.data_path or "").rstrip("/") or None
    url = sa.make_url(text.removeprefix("ducklake:")) if "://" in text else parsed.url
    url = url.difference_update_query(["data_path"])
    found = url.render_as_string(hide_password=False)
    return PondPlace(redact(text), LakePlace(found, None if root is None else f"{root}/{DATA}"))


def _of_file(path: Path) -> PondPlace:
    import yaml

    try:
        options = Options(f"the file {path.name}", yaml.safe_load(path.read_text("utf-8")))
    except OSError as error:
        raise ConfigError(f"the file {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file {path} is not valid YAML: {' '.join(str(error).split())}") from None
    url, data_path = (resolved(options.text(key), key) for key in ("url", "data_path"))
    options.finish()
    return PondPlace(str(path), _at_url(url, data_path).lake)
