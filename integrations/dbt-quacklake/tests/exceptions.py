"""Classes of dbt's suite that do not fit a lake, each with the reason."""

from __future__ import annotations

_PYTHON = "models are SQL; engine='spark' runs them on Spark"
_POSTGRES = "it tests another adapter"
_BASE = "it has no models of its own: the classes that inherit it run"
_CLONES = "a lake has no copies of tables that share their files: dbt makes views instead, which another class tests"
_FUNCTIONS = "functions are no resources of this adapter"
_ORDER = "it takes rows by their place in an answer without ORDER BY"
_OTHER = "it is for databases that do the opposite of what another class tests"
_NEWER = "its option --empty of seeds is not in this version of dbt"
_INDEXES = "a materialized view here has no indexes whose change could be applied to it"

LEFT_OUT: dict[str, str] = {
    "aliases.test_aliases.BaseSameAliasDifferentDatabases": "a target is one lake, so that there is one database",
    "caching.test_caching.BaseCachingTest": _BASE,
    "column_types.test_column_types.BasePostgresColumnTypes": _POSTGRES,
    "constraints.test_constraints.BaseConstraintsColumnsEqual": _BASE,
    "constraints.test_constraints.BaseContractSqlHeader": _BASE,
    "dbt_clone.test_dbt_clone.BaseClonePossible": _CLONES,
    "dbt_clone.test_dbt_clone.BaseCloneSameSourceAndTarget": "its models are no fixture, so that it clones nothing",
    "dbt_debug.test_dbt_debug.BaseDebugInvalidProjectPostgres": _POSTGRES,
    "dbt_debug.test_dbt_debug.BaseDebugPostgres": _POSTGRES,
    "empty.test_empty.BaseTestEmptySeedFlag": _NEWER,
    "functions": _FUNCTIONS,
    "materialized_view.changes": _INDEXES,
    "python_model": _PYTHON,
    "simple_snapshot.test_various_configs.BaseSnapshotDbtValidToCurrent": _ORDER,
    "utils.base_array_utils": _BASE,
    "utils.base_utils": _BASE,
    "utils.data_types.base_data_type_macro": _BASE,
    "utils.test_current_timestamp.BaseCurrentTimestampNaive": _OTHER,
    "utils.test_escape_single_quotes.BaseEscapeSingleQuotesBackslash": _OTHER,
}
"""Classes, and modules and packages of them, with the reason why they are not run."""


def reason(place: str) -> str | None:
    """Return why a class is left out; None if it is run."""
    return next((why for name, why in LEFT_OUT.items() if f"{place}.".startswith(f"{name}.")), None)
