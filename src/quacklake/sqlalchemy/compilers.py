"""Statements, types and names as DuckDB spells them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from sqlalchemy import exc, types
from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDDLCompiler, PGTypeCompiler
from sqlalchemy.sql.compiler import IdentifierPreparer

from quacklake.extend import duckdbs
from quacklake.extend.names import literal
from quacklake.sqlalchemy.types import TYPES


class TypeCompiler(PGTypeCompiler):
    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:
        """Return a type of eight bytes, as Python's float: DuckDB's FLOAT has four."""
        return "FLOAT" if type_.precision is not None and type_.precision <= 24 else "DOUBLE"

    def visit_DOUBLE(self, type_: Any, **kw: Any) -> str:
        return "DOUBLE"

    visit_DOUBLE_PRECISION = visit_DOUBLE

    def visit_NUMERIC(self, type_: Any, **kw: Any) -> str:
        """Return a decimal; without a precision, one that has room for what databases without limits take."""
        if type_.precision is None:
            return "DECIMAL(38, 10)"
        return f"DECIMAL({type_.precision:d}, {type_.scale or 0:d})"

    visit_DECIMAL = visit_NUMERIC

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"

    visit_CHAR = visit_NVARCHAR = visit_NCHAR = visit_TEXT = visit_CLOB = visit_VARCHAR

    def visit_enum(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"

    def visit_large_binary(self, type_: Any, **kw: Any) -> str:
        return "BLOB"

    visit_BLOB = visit_BINARY = visit_VARBINARY = visit_BYTEA = visit_large_binary

    def visit_TIMESTAMP(self, type_: Any, **kw: Any) -> str:
        return "TIMESTAMPTZ" if type_.timezone else "TIMESTAMP"

    visit_DATETIME = visit_datetime = visit_TIMESTAMP

    def visit_TIME(self, type_: Any, **kw: Any) -> str:
        return "TIMETZ" if type_.timezone else "TIME"

    def visit_interval(self, type_: Any, **kw: Any) -> str:
        return "INTERVAL"

    visit_INTERVAL = visit_interval

    def visit_uuid(self, type_: Any, **kw: Any) -> str:
        return "UUID"

    visit_UUID = visit_uuid

    def visit_JSON(self, type_: Any, **kw: Any) -> str:
        return "JSON"

    def visit_ARRAY(self, type_: Any, **kw: Any) -> str:
        return f"{self.process(type_.item_type, **kw)}{'[]' * (type_.dimensions or 1)}"

    def __getattr__(self, name: str) -> Callable[..., str]:
        """Compile the integers that only DuckDB has: their names are what they are called."""
        if name.removeprefix("visit_") in TYPES:
            return lambda type_, **kw: name.removeprefix("visit_")
        raise AttributeError(name)


class DdlCompiler(PGDDLCompiler):
    def get_column_specification(self, column: Any, **kwargs: Any) -> str:
        parts = [self.preparer.format_column(column), self.dialect.type_compiler_instance.process(column.type)]
        value = self.get_column_default_string(column)
        if value is not None:
            parts.append(f"DEFAULT {value}")
        if column.computed is not None:
            raise exc.CompileError("a lake has no computed columns: create a view")
        if not column.nullable:
            parts.append("NOT NULL")
        return " ".join(parts)

    def visit_foreign_key_constraint(self, constraint: Any, **kw: Any) -> Any:
        return self._left_out("foreign key")

    def visit_unique_constraint(self, constraint: Any, **kw: Any) -> Any:
        return self._left_out("UNIQUE")

    def visit_check_constraint(self, constraint: Any, **kw: Any) -> Any:
        return self._left_out("CHECK")

    visit_column_check_constraint = visit_check_constraint

    def _left_out(self, kind: str) -> Any:
        if self.dialect.ignore_constraints:  # type: ignore[attr-defined]
            return None  # SQLAlchemy leaves it out of the statement
        raise exc.CompileError(
            f"a lake keeps no {kind} constraint: remove it, or pass ignore_constraints=True to create_engine"
        )

    def visit_create_index(
        self, create: Any, include_schema: bool = False, include_table_schema: bool = True, **kw: Any
    ) -> str:
        if self.dialect.ignore_constraints:  # type: ignore[attr-defined]
            return "SELECT NULL"
        raise exc.CompileError("a lake has no indexes: partition or sort the table instead")

    def visit_drop_index(self, drop: Any, **kw: Any) -> str:
        return "SELECT NULL"

    def visit_set_table_comment(self, create: Any, **kw: Any) -> str:
        return f"COMMENT ON TABLE {self.preparer.format_table(create.element)} IS {_text(create.element.comment)}"

    def visit_set_column_comment(self, create: Any, **kw: Any) -> str:
        name = self.preparer.format_column(create.element, use_table=True, use_schema=True)
        return f"COMMENT ON COLUMN {name} IS {_text(create.element.comment)}"


def _text(value: str | None) -> str:
    return "NULL" if value is None else literal(value)


@cache
def _reserved() -> frozenset[str]:
    """Return the words that DuckDB takes for names only in quotes."""
    with duckdbs.connect() as connection:
        query = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
        return frozenset(name for (name,) in connection.execute(query).fetchall())


class Preparer(IdentifierPreparer):
    def __init__(self, dialect: Any, **kw: Any) -> None:
        super().__init__(dialect, **kw)
        self.reserved_words = {*_reserved(), "at"}


class Compiler(PGCompiler):
    def for_update_clause(self, select: Any, **kw: Any) -> str:
        """Return nothing: a transaction reads one snapshot, and conflicts show at the commit."""
        return ""

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Return a search for a pattern anywhere in a text: DuckDB's ``~`` compares it with the whole text."""
        flags = binary.modifiers["flags"]
        parts = [self.process(binary.left, **kw), self.process(binary.right, **kw)]
        return f"regexp_matches({', '.join([*parts, literal(flags)] if flags else parts)})"

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"NOT {self.visit_regexp_match_op_binary(binary, operator, **kw)}"

    def visit_bitwise_xor_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"xor({self.process(binary.left, **kw)}, {self.process(binary.right, **kw)})"

    def visit_json_getitem_op_binary(self, binary: Any, operator: Any, _cast_applied: bool = False, **kw: Any) -> str:
        """Return a part of a JSON value: as JSON, or as a value of the type that is asked for."""
        parts = f"{self.process(binary.left, **kw)}, {self.process(binary.right, **kw)}"
        if binary.type._type_affinity is types.JSON:
            return f"json_extract({parts})"
        kind = self.dialect.type_compiler_instance.process(binary.type)
        return f"CAST(json_extract_string({parts}) AS {kind})"

    visit_json_path_getitem_op_binary = visit_json_getitem_op_binary
