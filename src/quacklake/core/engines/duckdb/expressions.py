"""Expressions that compute a value from one row, and reach nothing else.

Filters, defaults and sort keys are such expressions. They come from the metadata, which other clients write, and from
applications that pass on what their users typed. So DuckDB's own tree of a text is held against a list: kinds of nodes
and functions that are not on it are refused, as is whatever a later DuckDB brings.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import duckdb

from quacklake.core.duckdb_versions import IS_2, connect
from quacklake.core.engines.duckdb.connections import reading
from quacklake.core.engines.duckdb.rendering import render
from quacklake.core.engines.duckdb.stored_texts import is_one_expression, select_of
from quacklake.core.engines.duckdb.trees import Node, TooManyParts, nodes, serialize
from quacklake.core.format.layout import SortKey, SortSpec, readable_keys
from quacklake.core.format.names import fold, literal, quote
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.texts import parse_column
from quacklake.errors import InputError, PredicateError, UnsupportedFeatureError

_OPERATORS = frozenset(
    """
    !__postfix !~~ !~~* % & && * ** + - ->> / // <-> << <=> <@ >> @ @> ^ ^@ | || ~ ~~ ~~* ~~~
    """.split()  # noqa: SIM905
)
_WORDS = frozenset(
    """
    abs acos acosh add age aggregate ago alias any_value apply approx_count_distinct approx_quantile approx_top_k
    arbitrary arg_max arg_max_null arg_max_nulls_last arg_min arg_min_null arg_min_nulls_last argmax argmin
    array_agg array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains
    array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct
    array_dot_product array_extract array_filter array_grade_up array_has array_has_all array_has_any array_indexof
    array_inner_product array_intersect array_length array_negative_dot_product array_negative_inner_product
    array_pop_back array_pop_front array_position array_prepend array_push_back array_push_front array_reduce
    array_resize array_reverse array_reverse_sort array_select array_slice array_sort array_to_json array_to_string
    array_to_string_comma_default array_transform array_unique array_value array_where array_zip ascii asin asinh
    atan atan2 atanh avg bar base64 bin bit_and bit_count bit_length bit_or bit_position bit_xor bitstring
    bitstring_agg bool_and bool_or can_cast_implicitly cardinality cast_to_type cbrt ceil ceiling century
    char_length character_length chr col_description concat concat_ws constant_or_null contains corr cos cosh cot
    count count_if count_star countif covar_pop covar_samp create_sort_key cume_dist current_catalog
    current_database current_date current_localtime current_localtimestamp current_role current_schema
    current_schemas current_user damerau_levenshtein date_add date_diff date_part date_sub date_trunc datediff
    datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear days_in_month decade decode degrees
    dense_rank divide editdist3 element_at encode ends_with entropy enum_code enum_first enum_last enum_range
    enum_range_boundary epoch epoch_ms epoch_ns epoch_us equi_width_bins era error even exp factorial favg fdiv fill
    filter first first_value flatten floor fmod format format_bytes format_pg_type formatreadabledecimalsize
    formatreadablesize from_base64 from_binary from_hex from_json from_json_strict fsum gamma gcd gen_random_uuid
    generate_series generate_subscripts geomean geometric_mean get_bit get_current_time get_current_timestamp
    get_type grade_up greatest greatest_common_divisor group_concat hamming has_any_column_privilege
    has_column_privilege has_database_privilege has_foreign_data_wrapper_privilege has_function_privilege
    has_language_privilege has_schema_privilege has_sequence_privilege has_server_privilege has_table_privilege
    has_tablespace_privilege hash hex histogram histogram_exact hour icu_sort_key ilike_escape in_search_path
    inet_client_addr inet_client_port inet_server_addr inet_server_port instr is_histogram_other_bin isfinite isinf
    isnan isodow isoyear jaccard jaro_similarity jaro_winkler_similarity json json_array json_array_length
    json_contains json_exists json_extract json_extract_path json_extract_path_text json_extract_string
    json_group_array json_group_object json_group_structure json_keys json_merge_patch json_object json_pretty
    json_quote json_structure json_transform json_transform_strict json_type json_valid json_value julian kahan_sum
    kurtosis kurtosis_pop lag last last_day last_value lcase lcm lead least least_common_multiple left left_grapheme
    len length length_grapheme levenshtein lgamma like_escape list list_aggr list_aggregate list_any_value
    list_append list_apply list_approx_count_distinct list_avg list_bit_and list_bit_or list_bit_xor list_bool_and
    list_bool_or list_cat list_concat list_contains list_cosine_distance list_cosine_similarity list_count
    list_distance list_distinct list_dot_product list_element list_entropy list_extract list_filter list_first
    list_grade_up list_has list_has_all list_has_any list_histogram list_indexof list_inner_product list_intersect
    list_kurtosis list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode
    list_negative_dot_product list_negative_inner_product list_pack list_position list_prepend list_product
    list_reduce list_resize list_reverse list_reverse_sort list_select list_sem list_skewness list_slice list_sort
    list_stddev_pop list_stddev_samp list_string_agg list_sum list_transform list_unique list_value list_var_pop
    list_var_samp list_where list_zip listagg ln log log10 log2 lower lpad ltrim mad make_date make_time
    make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz make_type map map_concat map_contains
    map_contains_entry map_contains_value map_entries map_extract map_extract_value map_from_entries map_keys
    map_to_pg_oid map_values max max_by md5 md5_number md5_number_lower md5_number_upper mean median microsecond
    millennium millisecond min min_by minute mismatches mod mode month monthname multiply nanosecond nextafter
    nfc_normalize normalized_interval not_ilike_escape not_like_escape now nth_value ntile nullif obj_description
    octet_length ord parse_dirname parse_dirpath parse_filename parse_formatted_bytes parse_path percent_rank
    percentile_cont percentile_disc pg_collation_is_visible pg_conf_load_time pg_conversion_is_visible
    pg_function_is_visible pg_get_expr pg_has_role pg_is_other_temp_schema pg_my_temp_schema pg_opclass_is_visible
    pg_operator_is_visible pg_opfamily_is_visible pg_postmaster_start_time pg_size_pretty pg_table_is_visible
    pg_ts_config_is_visible pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible
    pg_type_is_visible pg_typeof pi position pow power prefix printf product quantile quantile_cont quantile_disc
    quarter radians random range rank rank_dense reduce regexp_escape regexp_extract regexp_extract_all
    regexp_full_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace replace_type
    reservoir_quantile reverse right right_grapheme round round_even roundbankers row row_number row_to_json rpad
    rtrim second sem session_user set_bit sha1 sha256 shobj_description sign signbit sin sinh skewness split
    split_part sqrt st_asbinary st_astext st_aswkb st_aswkt st_crs st_geomfromwkb st_intersects_extent st_setcrs
    starts_with stddev stddev_pop stddev_samp str_split str_split_regex strftime string_agg string_split
    string_split_regex string_to_array strip_accents strlen strpos strptime struct_concat struct_contains
    struct_extract struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack struct_position
    struct_update struct_values substr substring substring_grapheme subtract suffix sum sum_no_overflow sumkahan
    switch tan tanh time_bucket timetz_byte_comparable timezone timezone_hour timezone_minute to_base to_base64
    to_binary to_centuries to_days to_decades to_hex to_hours to_json to_microseconds to_millennia to_milliseconds
    to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp translate
    trim trunc try_strptime typeof ucase unbin unhex unicode union_extract union_tag union_value unlist unnest
    unpivot_list upper url_decode url_encode user uuid uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7
    var_pop var_samp variance variant_extract variant_normalize variant_typeof version wavg week weekday weekofyear
    weighted_avg xor year yearweek
    """.split()  # noqa: SIM905
)
#: Those that came with DuckDB 2.0.
_SINCE_2 = frozenset(
    """
    assert_true binom decimal_average decimal_division hive_partition_component if invoke json_copy_strftime_if_date
    json_copy_strftime_if_timestamp json_deep_merge json_insert json_merge_patch_diff json_normalize json_remove
    json_replace json_set json_strip_nulls lttb overlay path_join st_asgeojson st_geomfromgeojson variant_array_length
    variant_contains variant_exists variant_extract_string variant_group_array variant_group_object variant_keys
    variant_type vertex_extract
    """.split()  # noqa: SIM905
)
#: The scalar functions, aggregates and macros that work on nothing but their arguments. Others are refused, also those
#: that a later DuckDB brings: a test names those that are left out.
FUNCTIONS = _OPERATORS | _WORDS | _SINCE_2


_KINDS = frozenset(
    """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA LAMBDA_REF OPERATOR STAR TYPE
    WINDOW
    """.split()  # noqa: SIM905
)
_REFUSED = {"SUBQUERY": "a subquery", "PARAMETER": "a parameter"}
#: Nodes that set the order of the rows of an aggregate.
_ORDERS = ("ORDER_MODIFIER", "ORDER_DEFAULT", "ASCENDING", "DESCENDING")
_HINT = "lake.sql runs queries"
#: Longer texts are checked again each time.
_KEPT_LENGTH = 4_096


_parsers: dict[int, duckdb.DuckDBPyConnection] = {}
_parsers_lock = threading.Lock()


def parser() -> duckdb.DuckDBPyConnection:
    """Return a connection that can parse and write texts, and reaches no file; the caller closes it."""
    with _parsers_lock:
        if os.getpid() not in _parsers:  # by process: that of a parent is of no use in a fork
            _parsers[os.getpid()] = connect(":memory:", config={"threads": 1, "enable_external_access": False})
        return _parsers[os.getpid()].cursor()


def check_expression(text: str, functions: Collection[str] = (), *, written: bool = False) -> str:
    """Raise ``InputError`` unless a text is one expression over a row, with known functions or some others."""
    return (_kept if len(text) <= _KEPT_LENGTH else _parse_cached)(text, frozenset(map(fold, functions)), written)


def plain_expression(text: str, functions: Collection[str] = ()) -> str:
    """Return an expression over a row as DuckDB writes it, without comments, to be put into SQL.

    Raise ``InputError`` for a text that is not one expression with known functions, or some others.

    >>> print(plain_expression("lower(name) /* of a person */ || 'x'"))
    (lower("name") || 'x')
    """
    return check_expression(text, functions, written=True)


def _parse_cached(text: str, functions: frozenset[str], written: bool) -> str:
    with parser() as connection:
        tree = _tree(connection, text)
        expression = tree["node"]["select_list"][0]
        if expression.get("class") == "STAR" and not expression["columns"]:
            raise InputError(f"{text!r} is not one expression")
        for node in nodes(expression):
            _check(text, node, functions)
        return render(connection, tree).removeprefix("SELECT ") if written else ""


_kept = lru_cache(maxsize=512)(_parse_cached)


def _tree(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    try:
        document = serialize(connection, f"SELECT {text}")
    except (TooManyParts, RecursionError, duckdb.Error) as error:
        raise InputError(f"the expression {text!r} cannot be parsed: {error}") from None
    if document["error"]:
        raise InputError(f"the expression {text!r} cannot be parsed: {document['error_message']}")
    statements: list[Node] = document["statements"]
    if len(statements) != 1 or not is_one_expression(statements[0]["node"]):
        raise InputError(f"{text!r} is not one expression")
    return statements[0]


def _check(text: str, node: Node, functions: frozenset[str]) -> None:
    class_, kind = node.get("class"), node.get("type")
    if class_ is not None and class_ not in _KINDS:
        raise InputError(f"the expression {text!r} has {_REFUSED.get(class_, class_)} in it", hint=_HINT)
    if class_ is None and ("node" in node or "cte_map" in node or "from_table" in node):
        raise InputError(f"the expression {text!r} has a query in it", hint=_HINT)
    if class_ is None and isinstance(kind, str) and not kind.endswith("_TYPE_INFO") and kind not in _ORDERS:
        raise InputError(f"the expression {text!r} has {kind} in it", hint=_HINT)
    if "function_name" in node:
        name = fold(node["function_name"])
        if name not in FUNCTIONS and name not in functions:
            raise InputError(
                f'the expression {text!r} calls the function "{node["function_name"]}", which is not allowed in it',
                hint="functions may work on their arguments only",
            )


_DIRECTIONS = ("ASC", "DESC")
_NULLS = {"NULLS_FIRST": "NULLS FIRST", "NULLS_LAST": "NULLS LAST"}


@dataclass(frozen=True, slots=True)
class OrderMacro:
    """A macro that an order of rows calls, and the statement that makes it."""

    name: str
    statement: str


def order_keys(spec: SortSpec | None, macros: Sequence[OrderMacro]) -> list[str]:
    """Return keys for ``ORDER BY`` in our dialect. Raise ``InputError`` for a stored key that needs more than a row."""
    names = [macro.name for macro in macros]
    return [] if spec is None else [_key(key, names) for key in readable_keys(spec)]


def _key(key: SortKey, names: Sequence[str]) -> str:
    if key.direction not in _DIRECTIONS or key.null_order not in _NULLS:
        raise InputError(
            f"the table is sorted by {key!s}, which is not a valid sort key", hint="set_sorted_by() sets another order"
        )
    try:
        expression = plain_expression(key.expression, names)
    except InputError as error:
        raise InputError(
            f"the order of the table cannot be used: {error.message}", hint="set_sorted_by() sets another order"
        ) from None
    return f"{sort_value(expression)} {key.direction} {_NULLS[key.null_order]}"


def sort_value(expression: str) -> str:
    """Return an expression by which ``ORDER BY`` leaves the values themselves alone.

    DuckDB 1.5 makes the values of a column that it sorts by from the sort keys, in which both zeros are one.
    """
    return expression if IS_2 else f"CASE WHEN ({expression}) IS NOT NULL THEN ({expression}) END"


def constant(value: Any) -> duckdb.Expression:
    """Return a value, also of numpy, as an expression. NaN stays NaN: DuckDB would make it NULL."""
    value = _plain(value)
    if not _holds_nan(value):
        return duckdb.ConstantExpression(value)
    if isinstance(value, Mapping):
        return duckdb.FunctionExpression("struct_pack", *(constant(item).alias(key) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return duckdb.FunctionExpression("list_value", *map(constant, value))
    return duckdb.SQLExpression("'nan'::DOUBLE")


def _plain(value: Any) -> Any:
    if type(value).__module__ != "numpy" or getattr(value, "ndim", None) != 0 or value.dtype.kind not in "biufSU":
        return value
    return value.item()


def _holds_nan(value: Any) -> bool:
    value = _plain(value)
    if isinstance(value, Mapping):
        return all(isinstance(key, str) for key in value) and any(map(_holds_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_nan, value))
    return isinstance(value, float) and value != value


_OF_SESSION = frozenset(
    """
    current_catalog current_database current_query current_role current_schema current_schemas current_setting
    current_user getvariable in_search_path session_user txid_current user
    """.split()  # noqa: SIM905
)
"""Functions that tell of the session, or of the connection that works for it."""


def session_function(tree: Any) -> str | None:
    """Return the name of a function in a tree that tells of the session it runs in, if there is one."""
    names = (fold(str(each["function_name"])) for each in nodes(tree) if each.get("class") == "FUNCTION")
    return next((name for name in names if name in _OF_SESSION), None)


class ExpressionBinder:
    """Expressions over the columns of some named tables. It queries a connection, and changes nothing."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, tables: Mapping[str, TableSchema]) -> None:
        self.tables = tables
        self._connection = connection
        self._select = select_of(connection, "1")
        self._from = ""

    def parse(self, text: str) -> Node:
        """Return the tree of a text that is one expression of these tables. Raise ``PredicateError``."""
        try:
            check_expression(text)
            node: Node = select_of(self._connection, text)["node"]["select_list"][0]
        except InputError as error:
            raise PredicateError(error.message, hint='write a condition such as "id > 5"') from None
        named = [each["column_names"] for each in nodes(node) if each.get("class") == "COLUMN_REF"]
        self._from = self._relations({fold(name) for names in named for name in names})
        # DuckDB allows no aggregate or window there
        self._run(f"SELECT 1 FROM {self._from} WHERE ({self.text(node)}) IS NULL")
        return node

    def _relations(self, names: Collection[str]) -> str:
        """Return the tables with those of their columns that some names may mean."""
        relations = []
        for table, schema in self.tables.items():
            columns = [column for column in schema.columns if fold(column.name) in names]
            made = [f"NULL::{column.duckdb_type()} AS {quote(column.name)}" for column in columns]
            relations.append(f"(SELECT {', '.join(made or ['NULL AS _ql_nothing'])}) AS {quote(table)}")
        return ", ".join(relations)

    def text(self, node: Node) -> str:
        select = {**self._select["node"], "select_list": [node]}
        return render(self._connection, {**self._select, "node": select}).removeprefix("SELECT ")

    def type_of(self, node: Node) -> Column:
        """Return the type of a part as a column. Raise ``UnsupportedFeatureError`` for a type that a lake lacks."""
        text = str(self._run(f"SELECT {self.text(node)} AS v FROM {self._from}").types[0])
        try:
            return parse_column("v", text)
        except InputError as error:
            raise UnsupportedFeatureError(f"Spark has no type {text}", hint=error.hint) from None

    def column(self, node: Node) -> tuple[str, list[Column]] | None:
        """Return the table and the column that a name means, with the fields inside of it that it goes down to."""
        names = node["column_names"]
        owner = next((name for name in self.tables if len(names) > 1 and fold(name) == fold(names[0])), None)
        owners = self.tables if owner is None else [owner]
        path = names if owner is None else names[1:]
        for table in owners:
            own = self.tables[table].get(path[0])
            if own is not None:
                return table, [own, *_fields(own, path[1:])]
        return None

    def is_constant(self, node: Node) -> bool:
        """Return whether no column of the tables has a part in it."""
        return all(
            each.get("class") != "SUBQUERY" and (each.get("class") != "COLUMN_REF" or self.column(each) is None)
            for each in nodes(node)
        )

    def constant(self, node: Node, type_: Column | None = None) -> tuple[str | None, Column]:
        """Return a value, also of numpy, as an expression. NaN stays NaN: DuckDB would make it NULL."""
        value = self._value(node, type_)
        text: str | None = self._one(f"SELECT CAST({value} AS VARCHAR)")
        return text, type_ or self.type_of(node)

    def interval(self, node: Node) -> tuple[int, int, int] | None:
        """Return the months, days and microseconds of a constant interval."""
        with reading():
            value = self._run(f"SELECT {self._value(node, None)} AS v").to_arrow_table().column("v")[0].as_py()
        if value is None:
            return None
        months, days, nanos = value
        return int(months), int(days), int(nanos) // 1000

    def _value(self, node: Node, type_: Column | None) -> str:
        names = sorted({each["function_name"] for each in nodes(node) if each.get("class") == "FUNCTION"})
        if (name := session_function(node)) is not None:
            raise UnsupportedFeatureError(f"{name} needs a SQL session")
        if names:
            known = f"function_name IN ({', '.join(map(literal, names))})"
            if self._one(f"SELECT count(*) FROM duckdb_functions() WHERE stability = 'VOLATILE' AND {known}"):
                raise UnsupportedFeatureError(
                    f"{self.text(node)} has another value for each row, which Spark cannot compute"
                )
        text = self.text(node)
        return text if type_ is None else f"CAST({text} AS {type_.duckdb_type()})"

    def _run(self, query: str) -> duckdb.DuckDBPyRelation:
        with reading():
            return self._connection.sql(query)

    def _one(self, query: str) -> Any:
        with reading():
            return self._run(query).fetchall()[0][0]


def _fields(column: Column, path: Sequence[str]) -> Iterator[Column]:
    for name in path:
        field = next((child for child in column.children if fold(child.name) == fold(name)), None)
        if column.type != "struct" or field is None:
            raise PredicateError(f'"{column.name}" has no field {name!r}')
        yield field
        column = field
