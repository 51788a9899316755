"""Operators: SQL in one transaction, and maintenance."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseOperator

import quacklake
from airflow_provider_quacklake.assets import SCHEME
from airflow_provider_quacklake.hooks import QuacklakeHook

if TYPE_CHECKING:
    from airflow.sdk import Context

_MAX_LENGTH = 250
"""The most characters of the text that ``lake.streams.list()`` shows for a mark."""
Parameters = Sequence[Any] | Mapping[str, Any] | None


class QuacklakeSqlOperator(BaseOperator):
    """Run SQL in one transaction: all statements are one snapshot, or nothing is changed.

    With ``once``, a mark of the task's run is committed with the rows: a try that follows one whose commit arrived,
    also after its worker died, changes nothing. A run that is cleared changes nothing either; trigger a new one for
    that. The outlets that are tables of a lake carry the id of the snapshot, which is also the result.

    ``sql`` is a text of one or several statements, or a list; ``parameters`` go to each text. Through a service,
    statements are committed one by one, and ``once`` is refused. For the rows of a query, use
    ``SQLExecuteQueryOperator`` with the same connection.
    """

    template_fields: Sequence[str] = ("sql", "parameters", "quacklake_conn_id")
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql", "parameters": "json"}  # noqa: RUF012 - as Airflow has it
    ui_color = "#fff4c2"

    def __init__(
        self,
        *,
        sql: str | list[str],
        parameters: Parameters = None,
        quacklake_conn_id: str = QuacklakeHook.default_conn_name,
        once: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.sql = sql
        self.parameters = parameters
        self.quacklake_conn_id = quacklake_conn_id
        self.once = once

    def execute(self, context: Context) -> int:
        """Run the statements, and return the id of the newest snapshot."""
        hook = QuacklakeHook(self.quacklake_conn_id)
        if hook.is_service and self.once:
            raise ValueError("once needs a transaction, and a service has none: connect to the lake's catalog instead")
        texts = [self.sql] if isinstance(self.sql, str) else self.sql
        with hook.lake() as lake:
            if hook.is_service:
                for text in texts:
                    lake.sql(text, self.parameters)  # type: ignore[arg-type]
            else:
                self._run(lake, texts, context)
            snapshot = int(lake.current_snapshot())
        _tell_outlets(self.outlets, context, {"snapshot": snapshot})
        return snapshot

    def _run(self, lake: quacklake.Lake, texts: Sequence[str], context: Context) -> None:
        name = _name(context)
        stream = f"airflow {hashlib.sha256(name.encode()).hexdigest()}"
        # from here on, an earlier try that is still alive cannot commit
        claim = lake.streams.claim(stream, name[:_MAX_LENGTH]) if self.once else None
        if claim is not None and claim.epoch >= 0:
            self.log.info("an earlier try has committed already: nothing is changed")
            return
        with lake.transaction(message=name) as tx:
            for text in texts:
                tx.sql(text, self.parameters)  # type: ignore[arg-type]
            if claim is not None:
                tx.mark(stream, 0, claim.run)


class QuacklakeMaintainOperator(BaseOperator):
    """Run the maintenance that is due: flush, merge and rewrite files, expire snapshots, remove files."""

    template_fields: Sequence[str] = ("quacklake_conn_id",)
    ui_color = "#fff4c2"

    def __init__(self, *, quacklake_conn_id: str = QuacklakeHook.default_conn_name, **more: Any) -> None:
        super().__init__(**more)
        self.quacklake_conn_id = quacklake_conn_id

    def execute(self, context: Context) -> list[dict[str, str | None]]:
        """Run one pass, and return its jobs. Raise the error of the first that failed."""
        hook = QuacklakeHook(self.quacklake_conn_id)
        if hook.is_service:
            raise ValueError("maintenance needs the lake's own catalog and store: connect to those, not to a service")
        with hook.lake() as lake:
            report = lake.maintain()
        for failed in report.failed:
            raise failed.error or RuntimeError("maintenance failed")
        return [{"kind": str(done.job.kind), "table": done.job.table} for done in report.jobs]


def _name(context: Context) -> str:
    """Return the name of a task's run, whichever try it is."""
    task = context["ti"]
    return f"airflow {task.dag_id} {task.task_id} {task.run_id} {task.map_index}"


def _tell_outlets(outlets: Sequence[Any], context: Context, facts: dict[str, Any]) -> None:
    for outlet in outlets:
        if isinstance(outlet, Asset) and outlet.uri.startswith(f"{SCHEME}://"):
            context["outlet_events"][outlet].extra.update(facts)
