"""Classes of dbt's suite that do not fit a lake, each with the reason."""

from __future__ import annotations

_PYTHON = "models are SQL; engine='spark' runs them on Spark"
_ONE_LAKE = "a target is one lake, so that there is one database"
_POSTGRES = "it tests another adapter"
_HOOKS = "it reads variables of a PostgreSQL server in its hooks"
_EXPECTED = "its expectations are for one database, and the class is made to be told others"

LEFT_OUT: dict[str, str] = {
    "aliases.test_aliases.BaseSameAliasDifferentDatabases": _ONE_LAKE,
    "basic.test_docs_generate.BaseDocsGenerate": _EXPECTED,
    "basic.test_docs_generate.BaseDocsGenReferences": _EXPECTED,
    "column_types.test_column_types.BasePostgresColumnTypes": _POSTGRES,
    "dbt_debug.test_dbt_debug.BaseDebugPostgres": _POSTGRES,
    "dbt_debug.test_dbt_debug.BaseDebugInvalidProjectPostgres": _POSTGRES,
    "python_model.test_python_model.BasePythonEmptyTests": _PYTHON,
    "python_model.test_python_model.BasePythonIncrementalTests": _PYTHON,
    "python_model.test_python_model.BasePythonMetaGetTests": _PYTHON,
    "python_model.test_python_model.BasePythonModelTests": _PYTHON,
    "python_model.test_python_model.BasePythonSampleTests": _PYTHON,
    "python_model.test_spark.BasePySparkTests": _PYTHON,
}
