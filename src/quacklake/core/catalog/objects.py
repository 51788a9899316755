"""Reading views, macros and tags."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import sqlalchemy as sa

from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.statements import AT, visible
from quacklake.core.format.objects import MacroInfo, MacroParameter, MacroVariant, ViewInfo
from quacklake.core.format.snapshots import Snapshot

_QUOTED = re.compile(r'"((?:[^"]|"")*)"')


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags with a value of a table or view, and of columns: of a table by their ids, of a view by their names."""

    own: dict[str, str] = field(default_factory=dict)
    columns: dict[int, dict[str, str]] = field(default_factory=dict)
    named: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TagRow:
    """A tag to be set; a value of None removes it."""

    object_id: int
    column_id: int | None
    key: str
    value: str | None
    column_name: str | None = None


def views(reader: Reader, snapshot: Snapshot) -> list[ViewInfo]:
    """Return the views of a snapshot, by schema and name."""
    v, s = reader.meta["view"], reader.meta["schema"]
    statement = (
        sa.select(
            *(v.c.view_id, v.c.view_uuid, v.c.schema_id, s.c.schema_name, v.c.view_name),
            *(v.c.sql, v.c.column_aliases, v.c.dialect),
        )
        .join_from(v, s, sa.and_(s.c.schema_id == v.c.schema_id, visible(s, snapshot.id)))
        .where(visible(v, snapshot.id))
        .order_by(s.c.schema_name, v.c.view_name)
    )
    rows = reader.run("views", statement).all()
    nested = reader.tables.nested_schemas(snapshot) if rows else {}
    found = []
    for id_, uuid, schema_id, own_name, name, sql, aliases, dialect in rows:
        schema = nested.get(schema_id, own_name)
        if schema is not None:
            names = tuple(alias.replace('""', '"') for alias in _QUOTED.findall(aliases or ""))
            found.append(ViewInfo(id_, uuid, schema_id, schema, name, sql, names, dialect))
    return found


def macros(reader: Reader, snapshot: Snapshot) -> list[MacroInfo]:
    """Return the macros of a snapshot, by schema and name."""
    if "macro" not in reader.meta:
        return []
    m, i, p, s = (reader.meta[name] for name in ("macro", "macro_impl", "macro_parameters", "schema"))
    # few lakes have any, and the first query of each asks: the statement below takes a database five times as long
    any_macro = reader.built("any_macro", lambda: sa.select(m.c.macro_id).where(visible(m, AT)).limit(1))
    if not reader.ask("any_macro", any_macro, {"at_snapshot": snapshot.id}):
        return []
    statement = (
        sa.select(
            *(m.c.macro_id, m.c.schema_id, s.c.schema_name, m.c.macro_name),
            *(i.c.impl_id, i.c.type, i.c.sql, i.c.dialect),
            *(p.c.parameter_name, p.c.parameter_type, p.c.default_value, p.c.default_value_type),
        )
        .select_from(
            m.join(s, sa.and_(s.c.schema_id == m.c.schema_id, visible(s, snapshot.id)))
            .join(i, i.c.macro_id == m.c.macro_id)
            .outerjoin(p, sa.and_(p.c.macro_id == i.c.macro_id, p.c.impl_id == i.c.impl_id))
        )
        .where(visible(m, snapshot.id))
        .order_by(s.c.schema_name, m.c.macro_name, m.c.macro_id, i.c.impl_id, p.c.column_id)
    )
    rows = reader.run("macros", statement).all()
    nested = reader.tables.nested_schemas(snapshot) if rows else {}
    macros: dict[int, MacroInfo] = {}
    variants: dict[tuple[int, int], tuple[str, str, list[MacroParameter]]] = {}
    for id_, schema_id, own_name, name, impl, kind, sql, dialect, parameter, type_, default, default_type in rows:
        schema_name = nested.get(schema_id, own_name)
        if schema_name is not None:
            macros.setdefault(id_, MacroInfo(id_, schema_id, schema_name, name, kind == "table", ()))
            parameters = variants.setdefault((id_, impl), (sql, dialect, []))[2]
            if parameter is not None:
                value = None if default_type == "unknown" else default
                parameters.append(MacroParameter(parameter, type_, value, default_type))
    for (id_, _), (sql, dialect, parameters) in variants.items():
        variant = MacroVariant(tuple(parameters), sql, dialect)
        macros[id_] = replace(macros[id_], variants=(*macros[id_].variants, variant))
    return list(macros.values())


def tags(reader: Reader, snapshot: Snapshot, object_id: int) -> Tags:
    """Return the tags of a table or view at a snapshot."""
    t, c = reader.meta["tag"], reader.meta["column_tag"]
    own = sa.select(sa.cast(sa.null(), sa.BigInteger), t.c.key, t.c.value).where(
        t.c.object_id == object_id, visible(t, snapshot.id)
    )
    columns = sa.select(c.c.column_id, c.c.key, c.c.value).where(c.c.table_id == object_id, visible(c, snapshot.id))
    tags = Tags()
    for column, key, value in reader.run("tags", own.union_all(columns)):
        if value is not None:
            target = tags.own if column is None else tags.columns.setdefault(column, {})
            target[key] = value
    named = reader.meta.get("view_column_tag")
    if named is not None:
        mine = sa.select(named.c.column_name, named.c.key, named.c.value).where(
            named.c.view_id == object_id, visible(named, snapshot.id)
        )
        for name, key, value in reader.run("view_column_tags", mine):
            if value is not None:
                tags.named.setdefault(name, {})[key] = value
    return tags


def tagged(reader: Reader, snapshot: Snapshot, key: str) -> dict[int, str]:
    """Return the values of a tag at a snapshot, by the ids of the tables and views that have it."""
    t = reader.meta["tag"]
    statement = sa.select(t.c.object_id, t.c.value).where(t.c.key == key, visible(t, snapshot.id))
    return {row[0]: row[1] for row in reader.run("tagged", statement) if row[1] is not None}


def tag_since(reader: Reader, snapshot: Snapshot, object_id: int, key: str) -> int | None:
    """Return the snapshot that gave a table or view the value that a tag has at a snapshot; None without the tag."""
    t = reader.meta["tag"]
    mine = sa.and_(t.c.object_id == object_id, t.c.key == key, visible(t, snapshot.id))
    found = reader.run("tag_since", sa.select(sa.func.max(t.c.begin_snapshot)).where(mine)).scalar()
    return None if found is None else int(found)
