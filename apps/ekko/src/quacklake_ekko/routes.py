"""Ekko's endpoints: transactions with filters and pages, as its dashboard asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from quacklake.errors import NotFoundError
from quacklake.service.identity import Identity
from quacklake.service.routes.sql import answer_sql, wanted_format
from quacklake.service.state import service_of
from quacklake.service.values import MAX_VALUE, Timestamp, Version, resolved_version
from quacklake_ekko.service import COLUMNS, NETWORKS, STATS, TransactionFilter, wire
from quacklake_ekko.table import find_key

router = APIRouter(tags=["ekko"])

Words = Annotated[list[str] | None, Query(max_length=100)]
Ask = Callable[[str, list[Any]], list[dict[str, Any]]]


async def _run_queries(
    request: Request, work: Callable[[Ask], Any], version: int | None = None, timestamp: str | None = None
) -> Any:
    """Run queries of a request in one safe session, on one snapshot."""
    service = service_of(request)
    identity = await service.enter(request)

    def run(identity: Identity) -> Any:
        at = resolved_version(identity.lake, version, timestamp)
        lent = service.sessions.lend(identity.lake, writes=False, version=at)
        try:
            lent.session.sql("BEGIN")  # all queries read one snapshot
            found = work(lambda text, values: lent.session.sql(text, values).to_arrow().to_pylist())
            lent.session.sql("COMMIT")
            return found
        finally:
            lent.give_back()

    async with service.turn():
        return await service.run(run, identity)


def _key(ask: Ask) -> str:
    return find_key([row["column_name"] for row in ask(COLUMNS, [])])


def _split_words(values: list[str] | None) -> tuple[str, ...]:
    """Return the parts of parameters that may be repeated, or be lists with commas."""
    return tuple(word.strip() for value in values or () for word in value.split(",") if word.strip())[:1_000]


def _parse_filter(
    wallet_addresses: Words = None,
    networks: Words = None,
    subnets: Words = None,
    transaction_types: Words = None,
    status: Annotated[str | None, Query(max_length=20)] = None,
    from_date: Annotated[str | None, Query(max_length=64)] = None,
    to_date: Annotated[str | None, Query(max_length=64)] = None,
    search: Annotated[str | None, Query(max_length=200)] = None,
    sort_by: Annotated[str, Query(max_length=20)] = "timestamp",
    sort_order: Annotated[str, Query(max_length=4)] = "desc",
) -> TransactionFilter:
    return TransactionFilter(
        wallet_addresses=_split_words(wallet_addresses),
        networks=_split_words(networks),
        subnets=_split_words(subnets),
        transaction_types=_split_words(transaction_types),
        status=status,
        from_date=from_date,
        to_date=to_date,
        search=search,
        sort_by=sort_by,
        sort_order=sort_order,
    )


Wanted = Annotated[TransactionFilter, Depends(_parse_filter)]


@router.get("/transactions/", summary="List transactions", operation_id="ekko_transactions")
@router.get("/transactions", include_in_schema=False)
async def transactions(
    request: Request,
    wanted: Wanted,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    offset: Annotated[int, Query(ge=0, le=MAX_VALUE)] = 0,
    version: Version = None,
    timestamp: Timestamp = None,
) -> dict[str, Any]:
    """Return a page of transactions, newest first, and how many there are in all."""

    def work(ask: Ask) -> dict[str, Any]:
        key = _key(ask)
        page = [wire(row) for row in ask(*wanted.page(limit, offset, key))]
        total = ask(*wanted.total(key))[0]["total"]
        return {
            "transactions": page,
            "total": total,
            "limit": limit,
            "offset": offset,
            "has_more": offset + len(page) < total,
        }

    found: dict[str, Any] = await _run_queries(request, work, version, timestamp)
    return found


@router.get(
    "/transactions/export", summary="Export transactions", operation_id="ekko_export", response_class=Response,
    responses={200: {"description": "Rows, in the format of the Accept header"}},
)  # fmt: skip
async def export(request: Request, wanted: Wanted, version: Version = None, timestamp: Timestamp = None) -> Response:
    """Return all transactions that a filter names, as rows of the table: CSV, Parquet, Arrow or JSON."""
    service = service_of(request)
    identity = await service.enter(request)
    at = await service.run(resolved_version, identity.lake, version, timestamp)
    key = await _run_queries(request, _key, at)
    return await answer_sql(service, request, identity, *wanted.all(key), wanted_format(request), at)


@router.get("/transactions/networks", summary="List networks", operation_id="ekko_networks")
async def networks(request: Request, version: Version = None, timestamp: Timestamp = None) -> dict[str, Any]:
    """Return the networks and subnets, and the number of transactions of each."""
    return {"networks": await _run_queries(request, lambda ask: ask(NETWORKS, []), version, timestamp)}


@router.get("/transactions/stats", summary="Count transactions", operation_id="ekko_stats")
async def stats(request: Request, version: Version = None, timestamp: Timestamp = None) -> dict[str, Any]:
    """Return how many transactions there are, of how many networks and senders, and of which time."""
    found: dict[str, Any] = (await _run_queries(request, lambda ask: ask(STATS, []), version, timestamp))[0]
    return found


@router.get("/transactions/test", summary="Try the service", operation_id="ekko_test")
async def try_it(request: Request) -> dict[str, str]:
    """Answer if the lake can be read."""
    await _run_queries(request, lambda ask: ask("SELECT 1 AS one", []))
    return {"status": "ok"}


@router.get("/transactions/{hash:part}", summary="Find a transaction", operation_id="ekko_transaction")
async def transaction(request: Request, hash: Annotated[str, Path(max_length=200)]) -> dict[str, Any]:
    """Return the transaction with a hash."""

    def work(ask: Ask) -> dict[str, Any]:
        rows = ask(*TransactionFilter(hash=hash).page(1, 0, _key(ask)))
        if not rows:
            raise NotFoundError("there is no transaction with this hash")
        return wire(rows[0])

    found: dict[str, Any] = await _run_queries(request, work)
    return found
