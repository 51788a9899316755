"""Predicates: what a filter says about the columns of files, so that files without a row of it are left out.

A predicate only ever rules files out: an engine still applies the filter itself to the rows.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from quacklake.core.format import bounds
from quacklake.core.format.bounds import ANYTHING, Predicate, every
from quacklake.core.format.schema import Column
from quacklake.core.format.stats import of_array
from quacklake.core.scan import to_predicate

__all__ = ["ANYTHING", "Predicate", "compare", "every", "to_predicate"]


def compare(column: Column, operator: Literal["<=", ">="], value: pa.Scalar) -> Predicate:
    """Return a comparison of a column with a value by ``<=`` or ``>=``.

    A value that is NULL, or that the column cannot hold, says nothing: then it is ``ANYTHING``.

    >>> column = Column(1, "id", "int32")
    >>> compare(column, ">=", pa.scalar(7)).text, compare(column, ">=", pa.scalar("seven")) == ANYTHING
    ('7', True)
    """
    try:
        (stats,) = of_array(pa.repeat(value, 1).cast(column.arrow_type()), column)
    except pa.ArrowInvalid:
        return ANYTHING
    # the bounds of a long text are shorter, and on either side of it
    return bounds.compare(column, operator, bounds.decode(stats.min if operator == ">=" else stats.max, column.type))
