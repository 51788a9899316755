"""The table of all settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType

from quacklake.config.values import Kind


@dataclass(frozen=True)
class Setting:
    """One setting: its type, default, variables (the first one set counts) and limits."""

    name: str
    kind: Kind
    default: object
    env: tuple[str, ...]
    help: str
    secret: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()


def _text(name: str, env: str, help: str, default: str | None = None, choices: tuple[str, ...] = ()) -> Setting:
    return Setting(name, "text", default, tuple(env.split()), help, choices=choices)


def _secret(name: str, env: str, help: str) -> Setting:
    return Setting(name, "secret", None, tuple(env.split()), help, secret=True)


def _number(name: str, env: str, help: str, default: float | None, minimum: float, maximum: float) -> Setting:
    kind: Kind = "float" if isinstance(default, float) else "int"
    return Setting(name, kind, default, tuple(env.split()), help, minimum=minimum, maximum=maximum)


SETTINGS: tuple[Setting, ...] = (
    _text("url", "QUACKLAKE_URL DUCKLAKE_CATALOG_URL", "URL of the metadata database"),
    Setting(
        "enabled",
        "bool",
        True,
        ("QUACKLAKE_ENABLED", "DUCKLAKE_ENABLED"),
        "Whether lakes may be opened; false stops every program that has this setting before it touches one",
    ),
    _text("catalog", "QUACKLAKE_CATALOG DUCKLAKE_CATALOG", "Catalog (tenant) of a shared lake"),
    _text(
        "catalog_type",
        "QUACKLAKE_CATALOG_TYPE DUCKLAKE_CATALOG_TYPE",
        "Kind of metadata database, used with catalog_path when there is no url",
        "sqlite",
        ("sqlite", "duckdb", "postgres", "postgresql", "mysql"),
    ),
    _text(
        "catalog_path",
        "QUACKLAKE_CATALOG_PATH DUCKLAKE_CATALOG_PATH",
        "File, host/database or DSN of the metadata database, used when there is no url",
    ),
    _text("postgres_host", "DUCKLAKE_POSTGRES_HOST", "Host of a PostgreSQL catalog, used without url and catalog_path"),
    _number("postgres_port", "DUCKLAKE_POSTGRES_PORT", "Port on postgres_host", 5432, 1, 65_535),
    _text("postgres_database", "DUCKLAKE_POSTGRES_DATABASE DUCKLAKE_POSTGRES_DB", "Database on postgres_host"),
    _text("postgres_user", "DUCKLAKE_POSTGRES_USER", "User on postgres_host"),
    _secret("postgres_password", "DUCKLAKE_POSTGRES_PASSWORD", "Password on postgres_host"),
    _text(
        "data_path",
        "QUACKLAKE_DATA_PATH DUCKLAKE_DATA_PATH DUCKLAKE_WAREHOUSE_PATH",
        "Where the Parquet files of a new lake go",
    ),
    _text(
        "bucket_name",
        "QUACKLAKE_BUCKET_NAME DUCKLAKE_BUCKET_NAME DUCKLAKE_S3_BUCKET",
        "S3 bucket for the files of a new lake, used when there is no data_path: they go to s3://BUCKET/data/",
    ),
    Setting(
        "encrypted",
        "bool",
        None,
        ("QUACKLAKE_ENCRYPTED", "DUCKLAKE_ENCRYPTED"),
        "Encrypt the files of a new lake; for a lake that exists, what it must be (default: whatever it is)",
    ),
    _text(
        "format_version",
        "QUACKLAKE_FORMAT_VERSION",
        "Version of the DuckLake format of a new lake; one that exists keeps its own",
        "1.0",
        ("1.0", "1.1"),
    ),
    Setting(
        "foreign_paths",
        "list",
        (),
        ("QUACKLAKE_FOREIGN_PATHS",),
        "Folders outside the data path whose files may be added and read, with commas between them",
    ),
    _text("metadata_schema", "QUACKLAKE_METADATA_SCHEMA DUCKLAKE_METADATA_SCHEMA", "Database schema of the metadata"),
    _number(
        "metadata_partitions",
        "QUACKLAKE_METADATA_PARTITIONS",
        "Parts of each metadata table of a new shared lake, on PostgreSQL and MySQL (default: it is whole)",
        None,
        2,
        32,
    ),
    _text(
        "s3_endpoint",
        "QUACKLAKE_S3_ENDPOINT DUCKLAKE_S3_ENDPOINT MINIO_ENDPOINT AWS_ENDPOINT_URL_S3 AWS_ENDPOINT_URL",
        "S3 endpoint",
    ),
    _secret(
        "s3_access_key",
        "QUACKLAKE_S3_ACCESS_KEY DUCKLAKE_S3_ACCESS_KEY_ID DUCKLAKE_S3_ACCESS_KEY MINIO_ACCESS_KEY AWS_ACCESS_KEY_ID",
        "S3 access key",
    ),
    _secret(
        "s3_secret_key",
        "QUACKLAKE_S3_SECRET_KEY DUCKLAKE_S3_SECRET_ACCESS_KEY DUCKLAKE_S3_SECRET_KEY MINIO_SECRET_KEY"
        " AWS_SECRET_ACCESS_KEY",
        "S3 secret key",
    ),
    _secret("s3_session_token", "QUACKLAKE_S3_SESSION_TOKEN AWS_SESSION_TOKEN", "S3 session token"),
    _text(
        "s3_region", "QUACKLAKE_S3_REGION DUCKLAKE_S3_REGION MINIO_REGION AWS_REGION AWS_DEFAULT_REGION", "S3 region"
    ),
    Setting(
        "s3_secure",
        "bool",
        True,
        ("QUACKLAKE_S3_SECURE", "DUCKLAKE_S3_USE_SSL", "MINIO_SECURE"),
        "Speak HTTPS to the S3 endpoint",
    ),
    Setting(
        "stores",
        "stores",
        None,
        ("QUACKLAKE_STORES",),
        "Options of stores by catalog (tenant) or data path, where they differ from the above; JSON in a variable",
        secret=True,
    ),
    _number(
        "ducklake_max_retry_count",
        "QUACKLAKE_MAX_RETRY_COUNT DUCKLAKE_MAX_RETRY_COUNT",
        "How often a commit that lost a race is tried again",
        10,
        0,
        1000,
    ),
    _number(
        "ducklake_retry_wait_ms",
        "QUACKLAKE_RETRY_WAIT_MS DUCKLAKE_RETRY_WAIT_MS",
        "Wait before the first retry, in milliseconds",
        100,
        0,
        60_000,
    ),
    _number(
        "ducklake_retry_backoff",
        "QUACKLAKE_RETRY_BACKOFF DUCKLAKE_RETRY_BACKOFF",
        "Factor by which each wait grows",
        1.5,
        1,
        10,
    ),
    _number(
        "turn_ms",
        "QUACKLAKE_TURN_MS",
        "A change that loses race after race, and takes no longer, keeps others from committing until it has; 0: never",
        5_000,
        0,
        600_000,
    ),
    _number(
        "limit_wait_ms",
        "QUACKLAKE_LIMIT_WAIT_MS",
        "How long a commit or scan waits, in milliseconds, when its catalog (tenant) does as many as it may at a time",
        5_000,
        0,
        3_600_000,
    ),
    _number(
        "data_inlining_row_limit",
        "QUACKLAKE_DATA_INLINING_ROW_LIMIT DUCKLAKE_DATA_INLINING_ROW_LIMIT",
        "Inserts up to this many rows go into the metadata database (default: what the lake says)",
        None,
        0,
        1_000_000,
    ),
    _number(
        "busy_timeout_ms",
        "QUACKLAKE_BUSY_TIMEOUT_MS",
        "Wait for a lock of the metadata database, in milliseconds",
        30_000,
        0,
        3_600_000,
    ),
    _text(
        "sqlite_journal",
        "QUACKLAKE_SQLITE_JOURNAL",
        "Journal of a SQLite catalog; wal lets others read during a commit, but no other client in the same process",
        "rollback",
        ("rollback", "wal"),
    ),
    _number("pool_size", "QUACKLAKE_POOL_SIZE", "Database connections kept open", 5, 1, 1000),
    _number("pool_max_overflow", "QUACKLAKE_POOL_MAX_OVERFLOW", "Connections beyond pool_size", 20, 0, 1000),
    Setting(
        "duckdb_memory_limit",
        "size",
        None,
        ("QUACKLAKE_DUCKDB_MEMORY_LIMIT", "DUCKLAKE_MEMORY_LIMIT_MB"),
        "Memory for DuckDB, such as 512MB (default: DuckDB's own)",
        minimum=1_000_000,
    ),
    _text(
        "duckdb_storage_version",
        "QUACKLAKE_DUCKDB_STORAGE_VERSION",
        "Oldest DuckDB that can open a new DuckDB catalog file, such as v1.5.0, or latest: only the one that makes it",
        "v1.5.0",
    ),
    _number(
        "duckdb_threads",
        "QUACKLAKE_DUCKDB_THREADS DUCKLAKE_THREADS",
        "Threads for DuckDB (default: one per core)",
        None,
        1,
        4096,
    ),
    _number(
        "compaction_max_files",
        "QUACKLAKE_COMPACTION_MAX_FILES",
        "Most files that one commit of a compaction replaces",
        10_000,
        2,
        30_000,
    ),
    _number(
        "compaction_max_rows",
        "QUACKLAKE_COMPACTION_MAX_ROWS",
        "About how many inlined rows one commit of a flush moves into files",
        1_000_000,
        1,
        1_000_000_000,
    ),
    _number(
        "compaction_max_replans",
        "QUACKLAKE_COMPACTION_MAX_REPLANS",
        "How often files that others change meanwhile are planned again before a compaction leaves them alone",
        3,
        0,
        1000,
    ),
    _number(
        "stream_driver_rows",
        "QUACKLAKE_STREAM_DRIVER_ROWS",
        "Batches of a Spark stream up to this many rows are written or merged by the driver, others by the executors",
        10_000,
        0,
        10_000_000,
    ),
    _number("plan_max_files", "QUACKLAKE_PLAN_MAX_FILES", "Most files one read may touch", 1_000_000, 1, 1_000_000_000),
    _number("fetch_batch_rows", "QUACKLAKE_FETCH_BATCH_ROWS", "Rows per batch of a result", 122_880, 1, 100_000_000),
    _number("storage_max_retries", "QUACKLAKE_STORAGE_MAX_RETRIES", "How often a storage call is retried", 5, 0, 100),
    Setting(
        "orphan_grace",
        "duration",
        timedelta(hours=1),
        ("QUACKLAKE_ORPHAN_GRACE",),
        "How old a file that no snapshot names must be before it is removed; longer than any transaction takes",
        minimum=0,
        maximum=31_536_000,
    ),
    _number("cleanup_threads", "QUACKLAKE_CLEANUP_THREADS", "Files that are removed at a time", 8, 1, 256),
    _number(
        "report_paths",
        "QUACKLAKE_REPORT_PATHS",
        "Most paths that the report of a cleanup keeps, of removed files and of those left alone",
        1000,
        0,
        1_000_000,
    ),
    _number(
        "telemetry_tenants",
        "QUACKLAKE_TELEMETRY_TENANTS",
        "Catalogs (tenants) that telemetry counts one by one in a process; the others are counted together; 0: none",
        100,
        0,
        100_000,
    ),
    _text("log_format", "QUACKLAKE_LOG_FORMAT", "Form of the log", "text", ("text", "json")),
    _text("log_level", "QUACKLAKE_LOG_LEVEL", "Least level logged", "warning", ("debug", "info", "warning", "error")),
)

BY_NAME: Mapping[str, Setting] = MappingProxyType({setting.name: setting for setting in SETTINGS})
