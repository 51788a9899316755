"""The features of a lake, in the words of SQLAlchemy's suite."""

from __future__ import annotations

from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

from tests.dbapi.dialect import provision  # noqa: F401 - registers itself

_LACKING = (
    # constraints and indexes
    "foreign_keys",
    "foreign_key_constraint_reflection",
    "self_referential_foreign_keys",
    "on_update_cascade",
    "recursive_fk_cascade",
    "named_constraints",
    "implicitly_named_constraints",
    "unique_constraint_reflection",
    "duplicate_key_raises_integrity_error",
    "indexes_with_ascdesc",
    "reflect_indexes_with_ascdesc",
    "index_reflection",
    # keys that the database makes
    "autoincrement_insert",
    "implements_get_lastrowid",
    "autoincrement_without_sequence",
    # the reflection of temporary tables
    "temp_table_reflection",
    # times of day with a zone
    "time_timezone",
)
_HAVING = (
    "aggregate_order_by",
    "array_type",
    "autocommit",
    "binary_literals",
    "boolean_col_expressions",
    "comment_reflection",
    "comment_reflection_full_unicode",
    "create_or_replace_view",
    "create_table_as",
    "create_temp_table_as",
    "ctes",
    "ctes_with_update_delete",
    "ctes_with_values",
    "date_historic",
    "datetime_historic",
    "datetime_interval",
    "datetime_literals",
    "datetime_timezone",
    "except_",
    "expression_server_defaults",
    "get_isolation_level_values",
    "infinity_floats",
    "intersect",
    "isolation_level",
    "json_type",
    "mod_operator_as_percent_sign",
    "nullsordering",
    "order_by_label_with_expression",
    "percent_schema_names",
    "precision_numerics_enotation_small",
    "precision_numerics_many_significant_digits",
    "regexp_match",
    "regexp_replace",
    "schema_create_delete",
    "server_defaults",
    "skip_autocommit_rollback",
    "supports_bitwise_and",
    "supports_bitwise_not",
    "supports_bitwise_or",
    "supports_bitwise_shift",
    "supports_bitwise_xor",
    "supports_distinct_on",
    "table_ddl_if_exists",
    "table_value_constructor",
    "timestamp_microseconds",
    "tuple_in",
    "update_from",
    "delete_from",
    "uuid_data_type",
    "views",
    "window_functions",
    "window_range",
    "window_range_numeric",
    "window_range_non_numeric",
    "fetch_first",
    "fetch_no_order_by",
    "fetch_expression",
)


class Requirements(SuiteRequirements):  # type: ignore[misc]
    """The features of a lake."""

    def get_isolation_levels(self, config: Any) -> dict[str, Any]:
        """Return the levels of isolation."""
        return {"default": "SNAPSHOT", "supported": ["SNAPSHOT", "AUTOCOMMIT"]}


for _name in _LACKING:
    setattr(Requirements, _name, property(lambda self: exclusions.closed()))
for _name in _HAVING:
    setattr(Requirements, _name, property(lambda self: exclusions.open()))
