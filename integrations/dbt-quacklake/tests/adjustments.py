"""Facts that classes of dbt's suite must be told of a lake: its types, its statements, its errors, its users.

The suite gives what PostgreSQL has, in fixtures and methods that adapters replace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dbt.tests.adapter.basic import expected_catalog
from dbt.tests.adapter.hooks.test_model_hooks import MODEL_POST_HOOK, MODEL_PRE_HOOK
from dbt.tests.adapter.sample_mode import fixtures as sample_fixtures
from dbt.tests.adapter.simple_seed import fixtures as seed_fixtures
from dbt.tests.adapter.simple_seed import seeds
from dbt.tests.adapter.utils import fixture_get_intervals_between as intervals
from dbt.tests.util import check_relations_equal, check_table_does_exist, get_relation_columns, run_dbt
from dbt_common.contracts.metadata import CatalogTable, ColumnMetadata, StatsItem, TableMetadata

import quacklake
from tests.targets import USERS, target

Namespace = dict[str, Any]


def _fixed(value: Any) -> Any:
    return pytest.fixture(scope="class")(lambda self: value)


# -- targets -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="class")
def _target(self: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return target(tmp_path_factory)


@pytest.fixture(scope="class")
def _next_target(self: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return a lake of version 1.1 of the format, in which columns of views have comments."""
    made = target(tmp_path_factory)
    quacklake.connect(made["lake"], made["data_path"], format_version="1.1").close()
    return made


@pytest.fixture(scope="class")
def _new_folder(self: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a path for data that the class creates and removes: its own would be ``tests/data`` of this package."""
    return tmp_path_factory.mktemp("seeds") / "data"


# -- contracts ---------------------------------------------------------------------------------------------------------

_JSON = """'{"bar": "baz", "balance": 7.77, "active": false}'::json"""
_TYPES: Namespace = {
    "string_type": _fixed("VARCHAR"),
    "int_type": _fixed("INTEGER"),
    "data_types": _fixed(
        [
            ["1", "integer", "INTEGER"],
            ["'1'", "varchar", "VARCHAR"],
            ["true", "boolean", "BOOLEAN"],
            ["'2013-11-03 00:00:00-07'::timestamptz", "timestamptz", "TIMESTAMP WITH TIME ZONE"],
            ["'2013-11-03 00:00:00'::timestamp", "timestamp", "TIMESTAMP"],
            ["['a', 'b', 'c']", "varchar[]", "VARCHAR[]"],
            ["[1, 2, 3]", "integer[]", "INTEGER[]"],
            ["'1'::decimal(10, 2)", "decimal(10, 2)", "DECIMAL"],
            [_JSON, "json", "JSON"],
        ]
    ),
}
_REST = """
insert into <model_identifier> (id, {name}, date_day)
(select id, {name}, date_day from ({comment} select 'blue' as {name}, 1 as id, '2019-01-01' as date_day) as model_subq)
"""
_COMMENTED = _REST.format(name="color", comment="-- depends_on: <foreign_key_model_identifier>")
_KEYED = (
    "create or replace table <model_identifier> (id integer not null primary key, color varchar, date_day varchar);"
    f"{_COMMENTED}"
)
_KEYED_BELOW = (
    "create or replace table <model_identifier>"
    " (id integer not null, color varchar, date_day varchar, primary key (id));"
    f"{_COMMENTED}"
)
_QUOTED = (
    'create or replace table <model_identifier> (id integer not null, "from" varchar not null, date_day varchar);'
    + _REST.format(name='"from"', comment="")
)
_NULLS: Namespace = {"expected_error_messages": _fixed(["NOT NULL constraint failed", '"id"'])}


# -- hooks -------------------------------------------------------------------------------------------------------------


def _check_context(context: dict[str, Any], state: str, project: Any) -> None:
    assert (context["test_state"], context["target_name"], context["target_type"]) == (state, "default", "quacklake")
    assert (context["target_schema"], context["target_threads"]) == (project.test_schema, 4)
    assert all(context[name] for name in ("run_started_at", "invocation_id", "thread_id"))


def _check_model_hooks(self: Any, state: str, project: Any, host: Any, count: int = 1) -> None:
    for context in self.get_ctx_vars(state, count=count, project=project):
        _check_context(context, state, project)


def _check_run_hooks(self: Any, state: str, project: Any, host: Any) -> None:
    _check_context(self.get_ctx_vars(state, project), state, project)


_MODEL_HOOKS: Namespace = {"check_hooks": _check_model_hooks}
_TIDY = {"sql": "select 1 from {{ this.schema }}.on_model_hook", "transaction": False}
_BOTH_HOOKS: Namespace = {
    **_MODEL_HOOKS,
    "project_config_update": _fixed(
        {"models": {"test": {"pre-hook": [MODEL_PRE_HOOK, _TIDY], "post-hook": [_TIDY, MODEL_POST_HOOK]}}}
    ),
}


# -- grants ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="class", autouse=True)
def _users(self: Any, project: Any) -> list[str]:
    lake = project.adapter.connections.lake(project.adapter.config.credentials)
    for name in USERS:
        lake.access.create_user(name)
    return USERS


_GRANTS: Namespace = {"get_test_users": _users}
_REFUSED: Namespace = {
    **_GRANTS,
    "grantee_does_not_exist_error": lambda self: "there is no user or role",
    "privilege_does_not_exist_error": lambda self: "there is no privilege",
}


# -- seeds -------------------------------------------------------------------------------------------------------------


def _view_stays(self: Any, run_result: Any, project: Any, exists: bool) -> None:
    """Check a seed that was loaded again: a view of the lake stays when its table is replaced."""
    assert len(run_result) == 1
    check_relations_equal(project.adapter, ["seed_actual", "seed_expected"])
    check_table_does_exist(project.adapter, "models__downstream_from_seed_actual")


@pytest.fixture(scope="class", autouse=True)
def _with_mark(self: Any, project: Any) -> None:
    project.run_sql(seeds.seeds__expected_sql)
    folder = Path(project.project_root) / "seeds"
    folder.mkdir(exist_ok=True)
    (folder / "seed_bom.csv").write_text("\ufeff" + seeds.seed__actual_csv.lstrip(), encoding="utf-8")


_SEED_TYPES = (
    seed_fixtures.properties__schema_yml.replace("type: text", "type: VARCHAR")
    .replace("type: date", "type: DATE")
    .replace("type: integer", "type: BIGINT")
    .replace("type: boolean", "type: BOOLEAN")
    .replace("type: timestamp without time zone", "type: TIMESTAMP")
)


# -- ephemeral models --------------------------------------------------------------------------------------------------


def _ephemeral_multi(self: Any, project: Any) -> None:
    run_dbt(["seed"])
    assert len(run_dbt(["run"])) == 3
    check_relations_equal(project.adapter, ["seed", "dependent", "double_dependent", "super_dependent"])


def _ephemeral_nested(self: Any, project: Any) -> None:
    assert len(run_dbt(["run"])) == 2
    check_relations_equal(project.adapter, ["source_table", "root_view"])


# -- documentation -----------------------------------------------------------------------------------------------------

_CATALOG_TYPES = {
    "role": None,
    "id_type": "BIGINT",
    "text_type": "VARCHAR",
    "time_type": "TIMESTAMP",
    "view_type": "VIEW",
    "table_type": "BASE TABLE",
    "model_stats": expected_catalog.no_stats(),
}


@pytest.fixture(scope="class")
def _catalog(self: Any, project: Any) -> Any:
    return expected_catalog.base_expected_catalog(project, **_CATALOG_TYPES)


@pytest.fixture(scope="class")
def _references(self: Any, project: Any) -> Any:
    return expected_catalog.expected_references_catalog(project, bigint_type="BIGINT", **_CATALOG_TYPES)


def _single(name: str, kind: str) -> Any:
    columns = {"id": "BIGINT", "first_name": "VARCHAR", "email": "VARCHAR", "ip_address": "VARCHAR"}

    @pytest.fixture(scope="class")
    def catalog(self: Any, project: Any) -> CatalogTable:
        metadata = TableMetadata(kind, project.test_schema, name, database=project.database)
        found = [*columns.items(), ("updated_at", "TIMESTAMP")]
        described = {name: ColumnMetadata(type_, at, name) for at, (name, type_) in enumerate(found, start=1)}
        said = "Indicates whether there are statistics for this table"
        return CatalogTable(
            metadata, described, {"has_stats": StatsItem("has_stats", "Has Stats?", False, False, said)}
        )

    return catalog


# -- materialized views ------------------------------------------------------------------------------------------------


def _insert(project: Any, table: Any, record: tuple[int, int]) -> None:
    project.run_sql(f"insert into {table} (id, value) values {record}")


def _refresh(project: Any, view: Any) -> None:
    project.run_sql(f"refresh materialized view {view}")


def _count(project: Any, relation: Any) -> int:
    found: int = project.run_sql(f"select count(*) from {relation}", fetch="one")[0]
    return found


def _kind(project: Any, relation: Any) -> str | None:
    with project.adapter.connection_named("__test"):
        known = project.adapter.list_relations_without_caching(relation.without_identifier())
    return next((str(found.type) for found in known if found.identifier == relation.identifier), None)


_MATERIALIZED: Namespace = {
    "insert_record": staticmethod(_insert),
    "refresh_materialized_view": staticmethod(_refresh),
    "query_row_count": staticmethod(_count),
    "query_relation_type": staticmethod(_kind),
}


# -- times -------------------------------------------------------------------------------------------------------------


def _batches(number: int) -> str:
    return f"select {number} as id, TIMESTAMP '2020-01-0{number} 00:00:00' as event_time"


@pytest.fixture(scope="class")
def _two_rows(self: Any, project: Any) -> str:
    values = "(4, TIMESTAMP '2020-01-04 00:00:00'), (5, TIMESTAMP '2020-01-05 00:00:00')"
    return f"insert into lake.{project.test_schema}.input_model (id, event_time) values {values}"


_INPUT = "{{ config(materialized='table', event_time='event_time') }}\n" + " union all ".join(map(_batches, (1, 2, 3)))
_NOW = {
    "current_timestamp": "TIMESTAMP WITH TIME ZONE",
    "current_timestamp_in_utc_backcompat": "TIMESTAMP",
    "current_timestamp_backcompat": "TIMESTAMP",
}


def _columns_of_integers(self: Any, project: Any) -> None:
    """Check whole numbers: those of a seed are BIGINT, which holds all of them."""
    run_dbt(["build"])
    check_relations_equal(project.adapter, ["expected", "actual"])
    kinds = [get_relation_columns(project.adapter, name)[0][1] for name in ("expected", "actual")]
    assert kinds == ["BIGINT", "INTEGER"]


_INTERVALS = intervals.models__test_get_intervals_between_sql.replace("09/01/2023", "2023-09-01")

ADJUSTED: dict[str, Namespace] = {
    "basic.test_docs_generate.BaseDocsGenReferences": {"expected_catalog": _references},
    "basic.test_docs_generate.BaseDocsGenerate": {"expected_catalog": _catalog},
    "basic.test_get_catalog_for_single_relation.BaseGetCatalogForSingleRelation": {
        "expected_catalog_my_seed": _single("my_seed", "BASE TABLE"),
        "expected_catalog_my_view_model": _single("my_view_model", "VIEW"),
    },
    "constraints.test_constraints.BaseConstraintQuotedColumn": {"expected_sql": _fixed(_QUOTED)},
    "constraints.test_constraints.BaseConstraintsRollback": _NULLS,
    "constraints.test_constraints.BaseConstraintsRuntimeDdlEnforcement": {"expected_sql": _fixed(_KEYED)},
    "constraints.test_constraints.BaseIncrementalConstraintsColumnsEqual": _TYPES,
    "constraints.test_constraints.BaseIncrementalConstraintsRollback": _NULLS,
    "constraints.test_constraints.BaseIncrementalConstraintsRuntimeDdlEnforcement": {"expected_sql": _fixed(_KEYED)},
    "constraints.test_constraints.BaseModelConstraintsRuntimeEnforcement": {"expected_sql": _fixed(_KEYED_BELOW)},
    "constraints.test_constraints.BaseTableConstraintsColumnsEqual": _TYPES,
    "constraints.test_constraints.BaseViewConstraintsColumnsEqual": _TYPES,
    "ephemeral.test_ephemeral.BaseEphemeralMulti": {"test_ephemeral_multi": _ephemeral_multi},
    "ephemeral.test_ephemeral.BaseEphemeralNested": {"test_ephemeral_nested": _ephemeral_nested},
    "grants.test_incremental_grants.BaseIncrementalGrants": _GRANTS,
    "grants.test_invalid_grants.BaseInvalidGrants": _REFUSED,
    "grants.test_model_grants.BaseModelGrants": _GRANTS,
    "grants.test_seed_grants.BaseSeedGrants": _GRANTS,
    "grants.test_snapshot_grants.BaseSnapshotGrants": _GRANTS,
    "hooks.test_model_hooks.BaseHookRefs": _MODEL_HOOKS,
    "hooks.test_model_hooks.BasePrePostModelHooks": _BOTH_HOOKS,
    "hooks.test_model_hooks.BasePrePostModelHooksInConfig": _MODEL_HOOKS,
    "hooks.test_model_hooks.BasePrePostModelHooksInConfigKwargs": _MODEL_HOOKS,
    "hooks.test_model_hooks.BasePrePostModelHooksInConfigWithCount": _BOTH_HOOKS,
    "hooks.test_run_hooks.BasePrePostRunHooks": {"check_hooks": _check_run_hooks},
    "incremental.test_incremental_microbatch.BaseMicrobatch": {
        "input_model_sql": _fixed(_INPUT),
        "insert_two_rows_sql": _two_rows,
    },
    "materialized_view.basic.MaterializedViewBasic": _MATERIALIZED,
    "sample_mode.test_sample_mode.BaseSampleModeTest": {
        "input_model_sql": _fixed(sample_fixtures.input_model_sql.replace("-0'", "'"))
    },
    "persist_docs.test_persist_docs.BasePersistDocs": {"dbt_profile_target": _next_target},
    "simple_copy.test_copy_uppercase.BaseSimpleCopyUppercase": {"dbt_profile_target": _target},
    "simple_seed.test_seed.BaseBasicSeedTests": {"_check_relation_end_state": _view_stays},
    "simple_seed.test_seed.BaseSeedConfigFullRefreshOn": {"_check_relation_end_state": _view_stays},
    "simple_seed.test_seed.BaseSeedSpecificFormats": {"test_data_dir": _new_folder},
    "simple_seed.test_seed.BaseSimpleSeedWithBOM": {"setUp": _with_mark},
    "simple_seed.test_seed_type_override.BaseSimpleSeedColumnOverride": {"models": _fixed({"schema.yml": _SEED_TYPES})},
    "utils.data_types.test_type_int.BaseTypeInt": {"test_check_types_assert_match": _columns_of_integers},
    "utils.test_get_intervals_between.BaseGetIntervalsBetween": {
        "models": _fixed(
            {
                "test_get_intervals_between.yml": intervals.models__test_get_intervals_between_yml,
                "test_get_intervals_between.sql": _INTERVALS.replace("09/12/2023", "2023-09-12"),
            }
        )
    },
    "utils.test_timestamps.BaseCurrentTimestamps": {"expected_schema": _fixed(_NOW), "expected_sql": _fixed(None)},
}
