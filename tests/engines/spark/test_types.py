"""The types of the format in Spark SQL."""

from __future__ import annotations

import pytest

from quacklake.core.format.types import SCALARS
from quacklake.spark.runtime.types import spark_type


@pytest.mark.parametrize("name", SCALARS)
def test_every_scalar_type_has_one_of_spark(name: str) -> None:
    assert spark_type(name).isupper()


def test_a_decimal_keeps_its_size() -> None:
    assert spark_type("decimal(9,2)") == "DECIMAL(9,2)"
