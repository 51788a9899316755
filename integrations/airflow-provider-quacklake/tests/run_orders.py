"""Run the example in this process, while the first try of each SQL task dies after its commit; print what happened."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pendulum
from airflow.models.asset import AssetEvent
from airflow.utils.session import create_session
from airflow_provider_quacklake.operators import QuacklakeSqlOperator

sys.path.insert(0, str(Path(__file__).parents[1] / "example"))


def main() -> None:
    """Print facts of the run as the last line."""
    from orders import made

    tries: dict[str, int] = {}
    execute = QuacklakeSqlOperator.execute

    def dying(self: QuacklakeSqlOperator, context: Any) -> int:
        snapshot = execute(self, context)
        tries[self.task_id] = context["ti"].try_number
        if context["ti"].try_number == 1:
            raise RuntimeError("the worker died after the commit")
        return snapshot

    QuacklakeSqlOperator.execute = dying  # type: ignore[method-assign]
    done = made.test(logical_date=pendulum.datetime(2024, 1, 2, tz="UTC"))
    with create_session() as session:
        events = [[event.asset.uri, event.extra.get("snapshot")] for event in session.query(AssetEvent).all()]
    states = {task.task_id: str(task.state) for task in done.get_task_instances()}
    facts = {"state": str(done.state), "run": done.run_id, "tries": tries, "states": states, "events": events}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
