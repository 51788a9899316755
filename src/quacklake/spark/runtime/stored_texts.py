"""Views, sort keys and queries of pipelines that others have stored, for Spark.

Spark runs whatever stands in them as whoever reads the view or writes the table: ``reflect(…)`` calls any method of
Java, ``TRANSFORM … USING 'sh'`` starts a program, ``${env:NAME}`` becomes a secret, ``csv.`/path` `` is a file. So a
text is written anew, from its tree and with every name in backticks. What is left are words, and each must be known to
be harmless:

>>> query_text("select Region, upper(name) as name from orders -- all")
'SELECT `Region`, UPPER(`name`) AS `name` FROM `orders`'
>>> query_text("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM t")
'SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY `x`) FROM `t`'
>>> query_text("SELECT reflect('java.lang.System', 'getenv', 'KEY')")
Traceback (most recent call last):
quacklake.errors.NotPermittedError: a stored text does not use REFLECT in Spark
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import exp

from quacklake.core.sql.words import Word
from quacklake.errors import NotPermittedError, SqlError, UnsupportedFeatureError
from quacklake.spark.runtime.words import hide_calls, show_calls, spark_words

# Spark's own functions, without those that call methods, read files or tell about the session and its user. `xpath`,
# `from_xml`, `from_avro` and `from_protobuf` take the names of files as options or in their documents.
_FUNCTIONS = frozenset(
    """
    abs acos acosh add_months aes_decrypt aes_encrypt aggregate any any_value approx_count_distinct approx_percentile
    approx_top_k array array_agg array_append array_compact array_contains array_distinct array_except array_insert
    array_intersect array_join array_max array_min array_position array_prepend array_remove array_repeat array_size
    array_sort array_union arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh avg base64 between
    bigint bin binary bit_and bit_count bit_get bit_length bit_or bit_xor bitmap_and_agg bitmap_bit_position
    bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or boolean bround btrim
    cardinality case cast cbrt ceil ceiling char char_length character_length chr coalesce collate collation
    collect_list collect_set concat concat_ws contains conv convert_timezone corr cos cosh cot count count_if
    count_min_sketch covar_pop covar_samp crc32 csc cume_dist curdate current_date current_time current_timestamp date
    date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day
    dayname dayofmonth dayofweek dayofyear decimal decode degrees dense_rank div double e element_at elt encode endswith
    equal_null every exists exp explode explode_outer expm1 extract factorial filter find_in_set first first_value
    flatten float floor forall format_number format_string from_csv from_json from_unixtime from_utc_timestamp get
    get_json_object getbit greatest grouping grouping_id hash hex histogram_numeric hll_sketch_agg hll_sketch_estimate
    hll_union hll_union_agg hour hypot if ifnull ilike in initcap inline inline_outer instr int is_valid_utf8
    is_variant_null isnan isnotnull isnull json_array_length json_object_keys json_tuple kurtosis lag last last_day
    last_value lcase lead least left len length levenshtein like listagg ln localtimestamp locate log log10 log1p log2
    lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz
    make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries map_filter
    map_from_arrays map_from_entries map_keys map_values map_zip_with mask max max_by md5 mean median min min_by minute
    mod mode monotonically_increasing_id month monthname months_between named_struct nanvl negative next_day not now
    nth_value ntile nullif nullifzero nvl nvl2 octet_length or overlay parse_json parse_url percent_rank percentile
    percentile_approx percentile_cont percentile_disc pi pmod posexplode posexplode_outer position positive pow power
    printf quarter quote radians raise_error rand randn random randstr range rank reduce regexp regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right rint rlike
    round row_number rpad rtrim schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg sec second
    sentences sequence session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned shuffle sign signum sin sinh
    size skewness slice smallint some sort_array soundex space spark_partition_id split split_part sqrt stack
    startswith std stddev stddev_pop stddev_samp str_to_map string string_agg struct substr substring substring_index
    sum tan tanh time time_diff time_trunc timestamp timestamp_micros timestamp_millis timestamp_seconds timestampadd
    timestampdiff tinyint to_binary to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz
    to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar to_variant_object transform transform_keys
    transform_values translate trim trunc try_add try_aes_decrypt try_avg try_cast try_divide try_element_at
    try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply
    try_parse_json try_parse_url try_subtract try_sum try_to_binary try_to_date try_to_number try_to_time
    try_to_timestamp try_url_decode try_validate_utf8 try_variant_get typeof ucase unbase64 unhex uniform unix_date
    unix_micros unix_millis unix_seconds unix_timestamp upper url_decode url_encode uuid validate_utf8 var_pop var_samp
    variance variant_explode variant_explode_outer variant_get weekday weekofyear when width_bucket window window_time
    xxhash64 year zeroifnull zip_with
    """.split()  # noqa: SIM905
)
#: Words of queries that may stand before a parenthesis, besides functions.
_OPENING = frozenset(
    """
    all and anti any as between by cross cube dec distinct else except exclude exists filter from group having in
    intersect join lateral like limit minus not numeric offset on or over partition pivot preceding qualify range
    repeatable right rollup rows select semi sets sort some struct tablesample then timestamp union unpivot using values
    varchar when where with within
    """.split()  # noqa: SIM905
)
#: Other words of queries.
_WORDS = _OPENING | frozenset(
    """
    array asc at bigint binary boolean both byte case cast char collate current current_date current_time
    current_timestamp date day days decimal desc div double end escape extract false first float following for full
    grouping hour hours ignore ilike include inner int integer interval is last leading left localtimestamp long map
    microsecond microseconds millisecond milliseconds minute minutes month months natural null nulls of only order
    ordinality outer percent quarter recursive regexp respect rlike row second seconds separator short smallint string
    time timestamp_ltz timestamp_ntz tinyint to trailing true unbounded unknown variant version view week weeks window
    year years zone
    """.split()  # noqa: SIM905
)
_SYMBOLS = frozenset("( ) [ ] , . + - * / % & | ^ ~ = < > ! <=> => == :: -> <= >= <> != ||".split())  # noqa: SIM905
_SUBSTITUTED = "${"
#: Functions that sqlglot does not parse, or writes as others: an exact percentile as percentile_approx.
_UNKNOWN = ("WINDOW", "PERCENTILE_CONT", "PERCENTILE_DISC")


def query_text(text: str) -> str:
    """Return the query that a stored text is, as Spark may run it.

    Raise ``SqlError`` for a text that is not one query, and ``NotPermittedError`` for one that might do harm.
    """
    return _text_of(_parse(text, exp.Query))


def expression_text(text: str, dialect: str = "spark") -> str:
    """Return the expression that a stored text is, as Spark may compute it.

    Raise as ``query_text`` does.
    """
    tree = _parse(f"SELECT {text}", exp.Select, dialect)
    if len(tree.expressions) != 1 or [name for name, part in tree.args.items() if part] != ["expressions"]:
        raise SqlError(f"{text!r} is not one expression")
    if tree.find(exp.Subquery, exp.Exists) is not None or isinstance(tree.expressions[0], exp.Alias | exp.Star):
        raise SqlError(f"{text!r} is not one expression of columns")
    return _text_of(tree).removeprefix("SELECT ")


def _parse(text: str, kind: type[exp.Expr], dialect: str = "spark") -> exp.Expr:
    if _SUBSTITUTED in text:
        raise NotPermittedError("a stored text holds ${, which Spark would replace by a setting")
    try:
        found = sqlglot.parse(hide_calls(text, _UNKNOWN), dialect=dialect)
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise SqlError(f"a stored text cannot be parsed: {str(error).splitlines()[0]}") from None
    if len(found) != 1 or not isinstance(found[0], kind):
        raise SqlError("a stored text is not one query")
    for hint in list(found[0].find_all(exp.Hint)):
        hint.pop()
    return found[0]


def _text_of(tree: exp.Expr) -> str:
    """Return the text of a tree, with every name in backticks and every word checked.

    Raise ``UnsupportedFeatureError`` for a text that means something else than the tree.
    """
    made = _write(tree)
    words = spark_words(made)
    _check_words(words)
    if _SUBSTITUTED in made:
        raise NotPermittedError("a stored text holds ${, which Spark would replace by a setting")
    again = _parse(made, exp.Expr)
    if _write(again) != made or _list_aggregates(again) != _list_aggregates(tree):
        raise UnsupportedFeatureError("a stored text has another meaning when it is written anew for Spark")
    return made


def _list_aggregates(tree: exp.Expr) -> list[str]:
    return sorted(type(node).__name__ for node in tree.find_all(exp.AggFunc))


def _write(tree: exp.Expr) -> str:
    try:
        made = tree.sql("spark", identify=True, comments=False, unsupported_level=sqlglot.ErrorLevel.RAISE)
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise SqlError(f"a stored text cannot be written for Spark: {str(error).splitlines()[0]}") from None
    return show_calls(made, _UNKNOWN)


def _check_words(words: Sequence[Word]) -> None:
    """Raise ``NotPermittedError`` for a word that is not known to be harmless."""
    texts = ["", *(word.text for word in words), ""]
    for word, before, after in zip(words, texts, texts[2:], strict=False):
        if not _is_harmless(word, before, after):
            raise NotPermittedError(f"a stored text does not use {word.text} in Spark")


def _is_harmless(word: Word, before: str, after: str) -> bool:
    value, is_call = word.text.lower(), after == "("
    if word.kind == "name":
        # the columns of a relation follow its name; any other call is one of a function
        return not is_call or before in ("AS", "WITH", "RECURSIVE")
    if word.kind != "word":
        return word.kind == "number" or (word.kind == "string" and not is_call) or word.text in _SYMBOLS
    if is_call:  # a function in a schema may be anybody's
        return before != "." and (value in _FUNCTIONS or value in _OPENING)
    if value == "using":
        return False  # what follows is a program
    return value in _WORDS or (before == ")" and value != "table")  # the name of a lateral view
