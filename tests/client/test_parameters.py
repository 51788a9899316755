"""Values of parameters as JSON: nothing is lost on the way, and nothing else is accepted."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.client.parameters import from_json, to_json
from quacklake.errors import InputError

_SINGLE = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.uuids()),
    *(st.dates(), st.times(), st.datetimes(), st.datetimes(timezones=st.just(dt.UTC)), st.timedeltas()),
    st.decimals(allow_nan=False),
)
VALUES = st.recursive(
    _SINGLE,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=12,
)


@given(VALUES)
def test_values_come_back_as_they_were(value: Any) -> None:
    back = from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))
    assert back == value and repr(back) == repr(value).replace(", fold=1", "")


def test_values_of_other_libraries_are_those_of_python() -> None:
    frame = pd.DataFrame({"i": [1], "f": [1.5], "t": [pd.Timestamp("2024-01-02 03:04:05")]})
    values = [frame["i"].iloc[0], frame["f"].iloc[0], frame["t"].iloc[0], pd.NaT, bytearray(b"x"), (1, 2)]
    assert from_json(to_json(values)) == [1, 1.5, dt.datetime(2024, 1, 2, 3, 4, 5), None, b"x", [1, 2]]
    assert math.isnan(from_json(to_json(math.nan)))
    assert Decimal(from_json(to_json(Decimal("NaN")))).is_nan()


@pytest.mark.parametrize("value", [object(), {1}, 1j, Fraction(1, 3), range(3), [[object()]], {"a": object()}])
def test_what_has_no_form_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="cannot be sent"):
        to_json(value)


@pytest.mark.parametrize(
    "value",
    [
        {}, {"type": "BLOB"}, {"type": "BLOB", "value": "eA==", "more": 1}, {"type": "BLOB", "value": "*"},
        {"type": "BLOB", "value": 1}, {"type": "os.system", "value": "x"}, {"type": ["BLOB"], "value": "x"},
        {"type": None, "value": None}, {"type": "DATE", "value": "2024-02-30"}, {"type": "INTERVAL", "value": "1"},
        {"type": "INTERVAL", "value": "9999999999999 0 0"}, {"type": "UUID", "value": "x"},
        {"type": "DECIMAL", "value": "x"}, {"type": "STRUCT", "value": [1]}, {"type": "STRUCT", "value": {"a": {}}},
        [{"a": 1}],
    ],
)  # fmt: skip
def test_what_no_client_makes_is_refused(value: Any) -> None:
    with pytest.raises(InputError):
        from_json(value)


def test_deep_values_are_refused_on_both_sides() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    for convert in (to_json, from_json):
        with pytest.raises(InputError, match="nested more than 64 deep"):
            convert(deep)
