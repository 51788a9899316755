"""Tables of settings, and that of a lake: types, defaults, variables, limits and meanings."""

# ruff: noqa: RUF009 (the calls in Config describe fields)
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from quacklake.config.redaction import redact
from quacklake.config.values import Kind, Secret, Stores

_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1))


@dataclass(frozen=True)
class Setting:
    """One setting: its type, default, variables (the first one set counts) and limits.

    ``option`` names the option of the command line that sets it, if there is one, and ``metavar`` its value.
    """

    name: str
    kind: Kind
    default: object
    env: tuple[str, ...]
    help: str
    secret: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    option: str = ""
    metavar: str | None = None

    @property
    def shown_default(self) -> str:
        """The default as people write it: empty for none, sizes in units where they are whole."""
        value = self.default
        if self.kind == "size" and isinstance(value, int) and value:
            unit, size = next(each for each in _UNITS if value % each[1] == 0)
            return f"{value // size}{unit}"
        return f"{value:g}s" if isinstance(value, float) and self.kind == "seconds" else _show_default(value)


class ConfigRow(NamedTuple):
    """One line of :meth:`Config.describe`."""

    name: str
    value: str
    source: str


def setting(kind: Kind, help: str, default: Any = None, also: str = "", **more: Any) -> Any:
    """Return the field of a dataclass that is a table of settings; ``more`` are limits, choices and the option.

    ``also`` has the variables that count after its own, which is named like the setting.
    """
    return field(default=default, metadata={"kind": kind, "help": help, "default": default, "also": also, **more})


def describe_settings(table: type, section: str = "") -> tuple[Setting, ...]:
    """Return the settings of a table in their order; a section is part of the names of their variables.

    >>> @dataclass
    ... class Cache:
    ...     max_bytes: int = setting("size", "Bytes that are kept", 1 << 20)
    >>> [(each.name, each.shown_default, each.env) for each in describe_settings(Cache, "cache")]
    [('max_bytes', '1MiB', ('QUACKLAKE_CACHE_MAX_BYTES',))]
    """
    return tuple(_describe(each.name, section, **each.metadata) for each in fields(table) if each.metadata)


def _describe(name: str, section: str, also: str, **facts: Any) -> Setting:
    vendor = "DUCKLAKE" if name.startswith("postgres_") else "QUACKLAKE"
    own = "_".join(filter(None, (vendor, section, name.removeprefix("ducklake_"))))
    return Setting(name, env=(own.upper(), *also.split()), **facts)


def _text(help: str, default: str | None = None, also: str = "", choices: tuple[str, ...] = ()) -> Any:
    return setting("text", help, default, also, choices=choices)


def _secret(help: str, also: str = "") -> Any:
    return setting("secret", help, None, also, secret=True)


def _number(help: str, default: float | None, minimum: float, maximum: float, also: str = "") -> Any:
    kind: Kind = "float" if isinstance(default, float) else "int"
    return setting(kind, help, default, also, minimum=minimum, maximum=maximum)


@dataclass(frozen=True, repr=False)
class Config:
    """Every setting, checked and typed. Made by :func:`resolve`."""

    sources: Mapping[str, str] = field(compare=False)
    url: str | None = _text("URL of the metadata database", also="DUCKLAKE_CATALOG_URL")
    enabled: bool = setting("bool", "Whether lakes may be opened at all", True, "DUCKLAKE_ENABLED")
    catalog: str | None = _text("Catalog (tenant) of a shared lake", also="DUCKLAKE_CATALOG")
    catalog_type: str = _text(
        "Kind of metadata database; used with `catalog_path`",
        "sqlite",
        "DUCKLAKE_CATALOG_TYPE",
        ("sqlite", "duckdb", "postgres", "postgresql", "mysql"),
    )
    catalog_path: str | None = _text(
        "File, host/database or DSN of the metadata database; used without `url`", also="DUCKLAKE_CATALOG_PATH"
    )
    postgres_host: str | None = _text("Host of a PostgreSQL catalog; used without `url` and `catalog_path`")
    postgres_port: int = _number("Port on `postgres_host`", 5432, 1, 65_535)
    postgres_database: str | None = _text("Database on `postgres_host`", also="DUCKLAKE_POSTGRES_DB")
    postgres_user: str | None = _text("User on `postgres_host`")
    postgres_password: Secret | None = _secret("Password on `postgres_host`")
    data_path: str | None = _text(
        "Folder or s3:// URL for the files of a new lake", also="DUCKLAKE_DATA_PATH DUCKLAKE_WAREHOUSE_PATH"
    )
    bucket_name: str | None = _text(
        "S3 bucket for the files of a new lake, in s3://BUCKET/data/; used without `data_path`",
        also="DUCKLAKE_BUCKET_NAME DUCKLAKE_S3_BUCKET",
    )
    pond: str | None = _text("Folder, URL or YAML file of the pond that the command `pond` works on", also="POND")
    encrypted: bool | None = setting(
        "bool",
        "Encrypt the files of a new lake; an existing lake must match (default: a new lake is not encrypted)",
        also="DUCKLAKE_ENCRYPTED",
    )
    format_version: str = _text("DuckLake format version of a new lake", "1.0", choices=("1.0", "1.1"))
    backup_key: Secret | None = _secret(
        "Key that encrypts backups: 32 bytes in hexadecimal digits or base64", "POND_BACKUP_KEY"
    )
    foreign_paths: tuple[str, ...] = setting(
        "list", "Folders outside the data path whose files may be added and read, separated by commas", ()
    )
    metadata_schema: str | None = _text("Database schema of the metadata", also="DUCKLAKE_METADATA_SCHEMA")
    metadata_partitions: int | None = _number(
        "Partitions of each metadata table of a new shared lake on PostgreSQL or MySQL (default: none)", None, 2, 32
    )
    s3_endpoint: str | None = _text(
        "S3 endpoint", also="DUCKLAKE_S3_ENDPOINT MINIO_ENDPOINT AWS_ENDPOINT_URL_S3 AWS_ENDPOINT_URL"
    )
    s3_access_key: Secret | None = _secret(
        "S3 access key", "DUCKLAKE_S3_ACCESS_KEY_ID DUCKLAKE_S3_ACCESS_KEY MINIO_ACCESS_KEY AWS_ACCESS_KEY_ID"
    )
    s3_secret_key: Secret | None = _secret(
        "S3 secret key", "DUCKLAKE_S3_SECRET_ACCESS_KEY DUCKLAKE_S3_SECRET_KEY MINIO_SECRET_KEY AWS_SECRET_ACCESS_KEY"
    )
    s3_session_token: Secret | None = _secret("S3 session token", "AWS_SESSION_TOKEN")
    s3_region: str | None = _text("S3 region", also="DUCKLAKE_S3_REGION MINIO_REGION AWS_REGION AWS_DEFAULT_REGION")
    s3_secure: bool = setting("bool", "Use HTTPS for the S3 endpoint", True, "DUCKLAKE_S3_USE_SSL MINIO_SECURE")
    stores: Stores | None = setting(
        "stores", "S3 options of single catalogs (tenants) or data paths; JSON in a variable", secret=True
    )
    ducklake_max_retry_count: int = _number(
        "How often a commit is retried after a conflict", 10, 0, 1000, "DUCKLAKE_MAX_RETRY_COUNT"
    )
    ducklake_retry_wait_ms: int = _number(
        "Wait before the first retry, in milliseconds", 100, 0, 60_000, "DUCKLAKE_RETRY_WAIT_MS"
    )
    ducklake_retry_backoff: float = _number(
        "Factor by which the wait grows with each retry", 1.5, 1, 10, "DUCKLAKE_RETRY_BACKOFF"
    )
    turn_ms: int = _number(
        "How long, in milliseconds, an operation or transaction that has lost a commit may hold back others; 0: never",
        5_000,
        0,
        600_000,
    )
    commit_group: int = _number(
        "How many appends of threads of one process may share a snapshot, at most; 1: each has its own", 64, 1, 1_000
    )
    limit_wait_ms: int = _number(
        "How long, in milliseconds, a commit or scan waits when its catalog (tenant) is at a limit",
        5_000,
        0,
        3_600_000,
    )
    access_audit: bool = setting(
        "bool", "Record what the users of a lake read and change, in its table quacklake_audit.log", False
    )
    token_cache_ms: int = _number(
        "How long, in milliseconds, a token that was right is not checked again; a revoked one may be used for so long",
        5_000,
        0,
        600_000,
    )
    data_inlining_row_limit: int | None = _number(
        "Inserts of up to this many rows are inlined in the catalog (default: the lake's option)",
        None,
        0,
        1_000_000,
        "DUCKLAKE_DATA_INLINING_ROW_LIMIT",
    )
    busy_timeout_ms: int = _number(
        "How long to wait for a lock of the metadata database, in milliseconds", 30_000, 0, 3_600_000
    )
    sqlite_journal: str = _text(
        "Journal of a SQLite catalog; `wal` allows reads during a commit, but no other client in the same process",
        "rollback",
        choices=("rollback", "wal"),
    )
    pool_size: int = _number("Database connections to keep open", 5, 1, 1000)
    pool_max_overflow: int = _number("Database connections beyond `pool_size`", 20, 0, 1000)
    duckdb_memory_limit: int | None = setting(
        "size",
        "Memory for DuckDB, such as 512MB (default: DuckDB's own limit)",
        also="DUCKLAKE_MEMORY_LIMIT_MB",
        minimum=1_000_000,
    )
    duckdb_storage_version: str = _text(
        "Oldest DuckDB version that can open a new DuckDB catalog file, or `latest` for only the current one", "v1.5.0"
    )
    duckdb_threads: int | None = _number(
        "Threads for DuckDB (default: one per core)", None, 1, 4096, "DUCKLAKE_THREADS"
    )
    compaction_max_files: int = _number("Most files that one commit of a compaction replaces", 10_000, 2, 30_000)
    compaction_max_rows: int = _number(
        "Approximate number of inlined rows that one commit of a flush writes to files", 1_000_000, 1, 1_000_000_000
    )
    compaction_max_replans: int = _number(
        "How often a compaction retries files that others change meanwhile, before it leaves them alone", 3, 0, 1000
    )
    stream_driver_rows: int = _number(
        "Batches of a Spark stream with up to this many rows are written by the driver, larger ones by executors",
        10_000,
        0,
        10_000_000,
    )
    spark_delete_rows: int = _number(
        "Spark itself searches a table with up to this many rows for those to delete; in a larger one DuckDB does, in"
        " tasks of Python, which takes longer to start",
        1_000_000,
        0,
        1_000_000_000_000,
    )
    plan_max_files: int = _number("Most files that one scan may read", 1_000_000, 1, 1_000_000_000)
    plan_cache_bytes: int = setting(
        "size",
        "Bytes of scan plans that are remembered while the newest snapshot of a lake stays the same, as many of"
        " inlined rows, and as many of bounds of files; 0 remembers none",
        256_000_000,
        minimum=0,
        maximum=1 << 40,
    )
    view_spark_bytes: int = setting(
        "size",
        "Bytes of files from which a refresh of a materialized view runs on Spark, if a session is active",
        8_000_000_000,
        minimum=0,
    )
    pond_read_bytes: int = _number(
        "Most bytes of a file of a pond that `FS.read` returns at once; `FS.open` reads files of any size",
        64_000_000,
        0,
        1 << 40,
    )
    shown_rows: int = _number(
        "Rows of a table or result that a command shows to people, without `--limit` and `--all`", 100, 0, 1_000_000_000
    )
    excel_max_bytes: int = setting(
        "size",
        "Most bytes of a workbook of Excel or OpenDocument when it is unpacked, by variable or settings file",
        1 << 30,
        minimum=1,
        maximum=1 << 40,
    )
    excel_memory: int = setting(
        "size",
        "Most memory of the process that reads a workbook, by variable or settings file",
        4 << 30,
        minimum=512 << 20,
        maximum=1 << 44,
    )
    excel_seconds: int = _number(
        "Most seconds that reading a workbook may take, by variable or settings file", 600, 1, 86_400
    )
    fetch_batch_rows: int = _number("Rows per batch of a result", 122_880, 1, 100_000_000)
    storage_max_retries: int = _number("How often a storage request is retried", 5, 0, 100)
    orphan_grace: timedelta = setting(
        "duration",
        "Minimum age of an orphaned file before it is removed; must be longer than any transaction",
        timedelta(hours=1),
        minimum=0,
        maximum=31_536_000,
    )
    cleanup_threads: int = _number("Files to remove at a time", 8, 1, 256)
    report_paths: int = _number("Most paths in the report of a cleanup", 1000, 0, 1_000_000)
    telemetry_tenants: int = _number(
        "Catalogs (tenants) that telemetry counts separately in a process; all others are counted together; 0: none",
        100,
        0,
        100_000,
    )
    openlineage_url: str | None = _text(
        "URL of a collector of OpenLineage events; none: no events", also="OPENLINEAGE_URL"
    )
    openlineage_endpoint: str = _text(
        "Path of the collector that takes events", "api/v1/lineage", "OPENLINEAGE_ENDPOINT"
    )
    openlineage_namespace: str = _text(
        "Namespace of the jobs in OpenLineage events", "default", "OPENLINEAGE_NAMESPACE"
    )
    openlineage_api_key: Secret | None = _secret("Key of the collector of OpenLineage events", "OPENLINEAGE_API_KEY")
    openlineage_reads: bool = setting("bool", "Send OpenLineage events of reads, too, not only of writes", True)
    openlineage_queue: int = _number(
        "Most OpenLineage events that wait to be sent; others are dropped", 1000, 1, 1_000_000
    )
    openlineage_timeout: timedelta = setting(
        "duration",
        "Longest time of a request to the collector, and of waiting for it at the end",
        timedelta(seconds=2),
        minimum=0,
        maximum=600,
    )
    log_format: str = _text("Log format", "text", choices=("text", "json"))
    log_level: str = _text("Lowest level to log", "warning", choices=("debug", "info", "warning", "error"))

    def describe(self) -> tuple[ConfigRow, ...]:
        """Return each setting with its value, secrets masked, and the source of the value."""
        return tuple(
            ConfigRow(each.name, _show_default(getattr(self, each.name)), self.sources[each.name]) for each in SETTINGS
        )

    def __repr__(self) -> str:
        chosen = [f"{row.name}={row.value}" for row in self.describe() if row.source != "default"]
        return f"Config({', '.join(chosen)})"


def _show_default(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, tuple):
        value = ",".join(value)
    return redact(value) if isinstance(value, str) else str(value)


SETTINGS: tuple[Setting, ...] = describe_settings(Config)
BY_NAME: Mapping[str, Setting] = MappingProxyType({each.name: each for each in SETTINGS})
