"""Tests of SQLAlchemy's suite that fail on a lake, each with the reason."""

from __future__ import annotations

_KEYS = "a lake makes no keys"
_ORDER = "it expects the order of the rows of a table from a query without ORDER BY"

EXCEPTIONS: dict[str, str] = {
    "ComponentReflectionTestExtra::test_string_length_reflection": "a VARCHAR has no length",
    "InsertBehaviorTest::test_autoclose_on_insert_implicit_returning": _KEYS,
    "InsertBehaviorTest::test_insert_from_select_autoinc": _KEYS,
    "IsolationLevelTest::test_dialect_user_setting_is_restored": "there is one level of isolation, and AUTOCOMMIT",
    "LongNameBlowoutTest::test_long_convention_name[ix": "a lake has no indexes",
    "TableViaSelectTest::test_without_metadata[use_temp0]": "temporary tables are not reflected",
    "TrueDivTest::test_truediv_divisor[numeric_38_digit_divisor": "DuckDB divides decimals as floats",
    "TrueDivTest::test_truediv_divisor[numeric_many_decimals": "DuckDB divides decimals as floats",
    "WindowFunctionTest::test_window_range": _ORDER,
}
"""The beginnings of the names of tests."""
