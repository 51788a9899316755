"""The layout of Ekko's Arrow files: their paths, their metadata and the columns they have.

A batch is ``transactions/network=N/subnet=S/vm_type=V/year=Y/month=M/day=D/hour=H/block_batch=FIRST-LAST/
transactions_YYYYMMDDTHHMMSS_<8 hex>.arrow``, and beside it lies the same name with ``.metadata.json``.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from quacklake.core.format.names import checked_relative
from quacklake.errors import InputError, PathError

FOLDER = "transactions/"
METADATA_SUFFIX = ".metadata.json"

SCHEMA = pa.schema(
    [
        pa.field("network", pa.string(), nullable=False),
        pa.field("subnet", pa.string(), nullable=False),
        pa.field("vm_type", pa.string(), nullable=False),
        pa.field("block_time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("year", pa.int32(), nullable=False),
        pa.field("month", pa.int32(), nullable=False),
        pa.field("day", pa.int32(), nullable=False),
        pa.field("hour", pa.int32(), nullable=False),
        pa.field("block_hash", pa.string()),
        pa.field("block_number", pa.uint64()),
        pa.field("tx_hash", pa.string(), nullable=False),
        pa.field("tx_index", pa.uint32()),
        pa.field("from", pa.string(), nullable=False),
        pa.field("to", pa.string()),
        pa.field("value", pa.string(), nullable=False),
        pa.field("gas_price", pa.string(), nullable=False),
        pa.field("gas_limit", pa.string(), nullable=False),
        pa.field("nonce", pa.string(), nullable=False),
        pa.field("input_data", pa.binary()),
        pa.field("success", pa.bool_(), nullable=False),
    ]
)
"""The columns of an Arrow file. ``to`` is empty where there is none, and ``input_data`` is hexadecimal text."""

_PATH = re.compile(
    r"transactions/network=(?P<network>[^/]+)/subnet=(?P<subnet>[^/]+)/vm_type=(?P<vm_type>[^/]+)"
    r"/year=(?P<year>\d{4})/month=(?P<month>\d{2})/day=(?P<day>\d{2})/hour=(?P<hour>\d{2})"
    r"/block_batch=(?P<start_block>\d{1,19})-(?P<end_block>\d{1,19})"
    r"/transactions_(?P<stamp>\d{8}T\d{6})_(?P<suffix>[0-9a-f]{8})\.arrow",
    re.ASCII,
)
_TIME_ZONES = timedelta(hours=15)
"""The most that the hour of a folder may differ from UTC: the old writer names folders in its own time zone."""
_ROUNDING = timedelta(milliseconds=1)


@dataclass(frozen=True)
class ArrowPath:
    """The facts in the path of a batch. ``stamp`` is the second in which it was written."""

    network: str
    subnet: str
    vm_type: str
    hour: datetime
    start_block: int
    end_block: int
    stamp: datetime
    suffix: str

    @classmethod
    def parse(cls, path: str) -> ArrowPath:
        """Return the parts of a path below the folder of the files. Raise ``InputError``."""
        found = _PATH.fullmatch(path)
        try:
            if found is None:
                raise ValueError
            hour = datetime(*(int(found[name]) for name in ("year", "month", "day", "hour")), tzinfo=UTC)  # type: ignore[misc,arg-type]
            stamp = datetime.strptime(found["stamp"], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        except ValueError:
            raise InputError("the path is not that of a batch of transactions") from None
        blocks = int(found["start_block"]), int(found["end_block"])
        return cls(found["network"], found["subnet"], found["vm_type"], hour, *blocks, stamp, found["suffix"])

    def __str__(self) -> str:
        return (
            f"{FOLDER}network={self.network}/subnet={self.subnet}/vm_type={self.vm_type}"
            f"/year={self.hour:%Y}/month={self.hour:%m}/day={self.hour:%d}/hour={self.hour:%H}"
            f"/block_batch={self.start_block}-{self.end_block}"
            f"/transactions_{self.stamp:%Y%m%dT%H%M%S}_{self.suffix}.arrow"
        )


@dataclass(frozen=True)
class BatchMetadata:
    """The contents of a ``.metadata.json``: what its batch has."""

    network: str
    subnet: str
    vm_type: str
    start_block: int
    end_block: int
    start_time: datetime
    end_time: datetime
    tx_count: int
    file_path: str
    file_size: int
    created_at: datetime

    def to_json(self) -> bytes:
        """Return the metadata as the old writer writes it."""
        return json.dumps(asdict(self), default=datetime.isoformat).encode()

    @classmethod
    def from_json(cls, text: bytes) -> BatchMetadata:
        """Return the metadata that a file holds. Raise ``InputError``."""
        try:
            values: dict[str, Any] = json.loads(text)
            found = {name: values[name] for name in cls.__dataclass_fields__}
            for name, kind in cls.__annotations__.items():
                if kind == "datetime":
                    moment = datetime.fromisoformat(found[name])
                    found[name] = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
                elif type(found[name]).__name__ != kind:
                    raise TypeError
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
            raise InputError("its metadata cannot be read") from None
        return cls(**found)

    def disagreement(self, actual: BatchMetadata) -> str | None:
        """Return the first field that is not as the batch has it, in a sentence; None if there is none."""
        for name, value in asdict(self).items():
            real = getattr(actual, name)
            if name == "created_at":
                continue
            if name == "file_path":
                same = value == real or value.endswith(f"/{real}")  # the bucket's prefix may come before it
            elif isinstance(value, datetime):
                same = abs(value - real) <= _ROUNDING  # the old writer has nanoseconds
            else:
                same = value == real
            if not same:
                return f"its metadata says {name} = {value}, the file has {real}"
        return None


def check_node(network: str, subnet: str, vm_type: str) -> None:
    """Raise ``InputError`` for a node whose names cannot be those of folders."""
    for name, value in (("network", network), ("subnet", subnet), ("vm_type", vm_type)):
        try:
            if not value or "/" in value:
                raise PathError(value)
            checked_relative(f"{name}={value}".replace("%", "_"))
        except PathError:
            raise InputError(f"{name} {value!r:.80} cannot be the name of a folder") from None


def check_path(path: ArrowPath, batch: BatchMetadata) -> None:
    """Raise ``InputError`` when a batch does not have what its path says."""
    for name in ("network", "subnet", "vm_type", "start_block", "end_block"):
        said, real = getattr(path, name), getattr(batch, name)
        if said != real:
            raise InputError(f"its path says {name} = {said}, the file has {real}")
    if not -_TIME_ZONES < batch.start_time - path.hour < _TIME_ZONES:
        raise InputError(f"its path says {path.hour:%Y-%m-%d %H}:00, the file begins at {batch.start_time:%F %T}")
