"""Refuse parameters of a query that a route does not have, which would otherwise have no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.types import Scope

from quacklake.errors import InputError, nearest

__all__ = ["check_parameters"]

_ALWAYS = "lake"
"""The parameter that names the lake, which every route takes."""
_known: WeakKeyDictionary[Callable[..., Any], tuple[str, ...]] = WeakKeyDictionary()


def check_parameters(scope: Scope) -> None:
    """Raise ``InputError`` for the first parameter that the route of a request does not have."""
    route = scope.get("route")
    if not scope["query_string"] or not isinstance(route, APIRoute):
        return
    known = _known.get(route.endpoint)
    if known is None:
        known = _known[route.endpoint] = tuple(sorted({_ALWAYS, *_parameters(route.dependant)}))
    for name in QueryParams(scope["query_string"]):
        if name not in known:
            hint = nearest(name, known) or f"this route takes: {', '.join(known)}"
            raise InputError(f'there is no parameter "{name[:100]}"', hint=hint)


def _parameters(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _parameters(each)
