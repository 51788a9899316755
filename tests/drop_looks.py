"""Queries of the oracle of DROPs, on the connection of the transaction that drops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["DuckDBLook", "Look", "PostgresLook", "SqliteLook"]

#: Parts of a lake that a conversion need not carry: who was working, and tables of inlined rows, which are empty.
_LEFT = ("leases", "inlined_data_tables", "schema_versions")


class Look(Protocol):
    """One open connection."""

    raw: Any

    def ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""

    def place(self, name: Sequence[str]) -> tuple[str, str]:
        """Return the schema and table name that a name refers to."""

    def exists(self, schema: str, relation: str) -> bool:
        """Return whether the table or view exists."""

    def is_temporary(self, schema: str, relation: str) -> bool:
        """Return whether only this session has it."""

    def is_lake(self, schema: str) -> bool:
        """Return whether the tables of a lake are in a schema."""

    def lake_under(self, schema: str, view: str) -> str | None:
        """Return the schema of the lake that a view reads."""

    def exposed_by(self, schema: str) -> str | None:
        """Return the schema of the lake of which a catalog is exposed in a schema."""

    def content(self, schema: str) -> list[str]:
        """Return what is in a schema."""

    def solid_dependents(self, schema: str, relation: str) -> list[str]:
        """Return what depends on a relation and is more than a view."""

    def unmirrored(self, schema: str, table: str, lake: str) -> bool:
        """Return whether a table of an exposed catalog has rows that the shared one lacks."""

    def shows(self, schema: str, table: str, table_id: int) -> bool:
        """Return whether any snapshot shows a row, or a delete, of a table of inlined ones."""

    def lists(self, schema: str, table: str) -> bool:
        """Return whether the catalog names a table of inlined rows."""

    def uncarried(self, schema: str, table: str) -> int:
        """Return how many rows a table that was put aside has more than the one in its place."""

    def version(self, schema: str) -> str:
        """Return the format version of a lake."""


class _Sql:
    """The queries that are the same for all databases."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.raw.cursor()
        try:
            cursor.execute(query, values) if values else cursor.execute(query)
            return [tuple(row) for row in cursor.fetchall()]
        finally:
            cursor.close()

    def exists(self, schema: str, relation: str) -> bool:
        raise NotImplementedError

    def _name(self, schema: str, table: str) -> str:
        return ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table))

    def is_lake(self, schema: str) -> bool:
        raise NotImplementedError

    def shows(self, schema: str, table: str, table_id: int) -> bool:
        rows = self._name(schema, table)
        if not self.exists(schema, "ducklake_snapshot"):  # put aside: then it must be empty
            return bool(self.ask(f"SELECT 1 FROM {rows} LIMIT 1"))
        if "_delete_" in table:
            files = self._name(schema, "ducklake_data_file")
            return bool(self.ask(f"SELECT 1 FROM {rows} r JOIN {files} f ON f.data_file_id = r.file_id LIMIT 1"))
        cursor = self.raw.cursor()
        cursor.execute(f"SELECT * FROM {rows} LIMIT 0")
        _, begin, end = (f'r."{column[0]}"' for column in cursor.description[:3])
        cursor.close()
        query = (
            f"SELECT 1 FROM {rows} r JOIN {self._name(schema, 'ducklake_snapshot')} s ON {begin} <= s.snapshot_id"
            f" AND ({end} IS NULL OR {end} > s.snapshot_id) JOIN {self._name(schema, 'ducklake_table')} t"
            f" ON t.table_id = {table_id:d} AND t.begin_snapshot <= s.snapshot_id"
            " AND (t.end_snapshot IS NULL OR t.end_snapshot > s.snapshot_id) LIMIT 1"
        )
        return bool(self.ask(query))

    def lists(self, schema: str, table: str) -> bool:
        names = {
            name for (name,) in self.ask(f"SELECT table_name FROM {self._name(schema, 'ducklake_inlined_data_tables')}")
        }
        return table in names

    def uncarried(self, schema: str, table: str) -> int:
        part = table.removeprefix("quacklake_old_")
        if part in _LEFT:
            return 0
        new = next((f"{p}_{part}" for p in ("ducklake", "quacklake") if self.exists(schema, f"{p}_{part}")), None)
        if new is None:
            return int(self._count(schema, table))
        return max(0, self._count(schema, table) - self._count(schema, new))

    def _count(self, schema: str, table: str) -> int:
        return int(self.ask(f"SELECT count(*) FROM {self._name(schema, table)}")[0][0])

    def version(self, schema: str) -> str:
        rows = self.ask(f"SELECT value FROM {self._name(schema, 'ducklake_metadata')} WHERE key = 'version'")
        return "/".join(sorted(str(value) for (value,) in rows))


class SqliteLook(_Sql):
    """A file of SQLite is one lake, and has no schemas."""

    def place(self, name: Sequence[str]) -> tuple[str, str]:
        return "main", name[-1]

    def exists(self, schema: str, relation: str) -> bool:
        query = "SELECT 1 FROM (SELECT name FROM sqlite_master UNION ALL SELECT name FROM sqlite_temp_master) WHERE name = ?"
        return bool(self.ask(query, relation))

    def is_temporary(self, schema: str, relation: str) -> bool:
        return bool(self.ask("SELECT 1 FROM sqlite_temp_master WHERE name = ?", relation))

    def is_lake(self, schema: str) -> bool:
        return True

    def lake_under(self, schema: str, view: str) -> str | None:
        return None

    def exposed_by(self, schema: str) -> str | None:
        return None

    def content(self, schema: str) -> list[str]:
        return []

    def solid_dependents(self, schema: str, relation: str) -> list[str]:
        return []

    def unmirrored(self, schema: str, table: str, lake: str) -> bool:
        return True


class DuckDBLook(SqliteLook):
    """Queries on a DuckDB file, which is one schema here, under any name."""

    def place(self, name: Sequence[str]) -> tuple[str, str]:
        return (name[0] if len(name) > 1 else "main"), name[-1]

    def exists(self, schema: str, relation: str) -> bool:
        return bool(self.ask("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", relation))

    def is_temporary(self, schema: str, relation: str) -> bool:
        return bool(self.ask("SELECT 1 FROM duckdb_tables() WHERE table_name = ? AND temporary", relation))


class PostgresLook(_Sql):
    """A database of PostgreSQL may hold lakes in many schemas."""

    def place(self, name: Sequence[str]) -> tuple[str, str]:
        if len(name) > 1:
            return name[0], name[1]
        query = "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)"
        found = self.ask(query, '"' + name[-1].replace('"', '""') + '"')
        return (str(found[0][0]) if found else str(self.ask("SELECT current_schema()")[0][0])), name[-1]

    def _kind(self, schema: str, relation: str) -> tuple[Any, ...] | None:
        query = "SELECT relkind::text, relpersistence::text FROM pg_class WHERE oid = to_regclass(%s)"
        found = self.ask(query, self._name(schema, relation))
        return found[0] if found else None

    def exists(self, schema: str, relation: str) -> bool:
        return self._kind(schema, relation) is not None

    def is_temporary(self, schema: str, relation: str) -> bool:
        found = self._kind(schema, relation)
        return found is not None and found[1] == "t"

    def is_lake(self, schema: str) -> bool:
        found = self._kind(schema, "ducklake_snapshot")
        return found is not None and found[0] in ("r", "p")

    def lake_under(self, schema: str, view: str) -> str | None:
        query = (
            "SELECT DISTINCT n.nspname FROM pg_rewrite r JOIN pg_depend d ON d.objid = r.oid"
            " AND d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass"
            " JOIN pg_class b ON b.oid = d.refobjid AND b.oid <> r.ev_class JOIN pg_namespace n ON n.oid = b.relnamespace"
            " WHERE r.ev_class = to_regclass(%s)"
        )
        found = self.ask(query, self._name(schema, view))
        lakes = [str(name) for (name,) in found]
        return lakes[0] if len(lakes) == 1 and self.is_lake(lakes[0]) else None

    def exposed_by(self, schema: str) -> str | None:
        query = (
            "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relname = 'quacklake_exposed' AND c.relkind = 'r'"
        )
        for (lake,) in self.ask(query):
            rows = self.ask(f"SELECT catalog_id, schema_name FROM {self._name(lake, 'quacklake_exposed')}")
            for id_, name in rows:
                own = f"{lake.encode()[:40].decode(errors='ignore')}_tenant_{id_}"
                if schema in ({name} if name is not None else {f"tenant_{id_}", own}):
                    return str(lake)
        return None

    def content(self, schema: str) -> list[str]:
        query = (
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s"
            " AND c.relkind <> 'i' UNION ALL SELECT proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname = %s"
        )
        return sorted(str(name) for (name,) in self.ask(query, schema, schema))

    def solid_dependents(self, schema: str, relation: str) -> list[str]:
        query = (
            "SELECT DISTINCT c.oid::regclass::text FROM pg_depend d JOIN pg_class c ON c.oid = d.objid"
            " AND d.classid = 'pg_class'::regclass WHERE d.refobjid = to_regclass(%s) AND d.deptype = 'n'"
            " AND c.relkind NOT IN ('v', 'i', 't') UNION SELECT DISTINCT c.oid::regclass::text FROM pg_depend d"
            " JOIN pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass"
            " JOIN pg_class c ON c.oid = r.ev_class WHERE d.refobjid = to_regclass(%s) AND c.relkind <> 'v'"
        )
        name = self._name(schema, relation)
        return sorted(str(other) for (other,) in self.ask(query, name, name))

    def unmirrored(self, schema: str, table: str, lake: str) -> bool:
        query = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 ORDER BY attnum"
        columns = ", ".join(f'"{name}"' for (name,) in self.ask(query, self._name(schema, table)))
        # DuckDB's own limit is for it alone
        mine = "WHERE key <> 'data_inlining_row_limit'" if table == "ducklake_metadata" else ""
        rows = f"SELECT {columns} FROM {self._name(schema, table)} {mine}"
        return bool(self.ask(f"{rows} EXCEPT SELECT {columns} FROM {self._name(lake, table)} LIMIT 1"))
