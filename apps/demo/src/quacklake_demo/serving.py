"""``quacklake serve-demo``: serve a temporary lake with sample data, for a look at the dashboard and the API."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from quacklake.cli.commands.serve import ServedLake

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

    from quacklake.cli.context import Context
    from quacklake.lake import Lake
    from quacklake.service.identity import Gate, Role
    from quacklake_demo.shop import DemoGate


class DemoLake(ServedLake):
    """The lake of a shop in a temporary folder, which is filled while the first requests wait."""

    opens_late = True

    def prepare(self, stack: ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quacklake-demo-")))
        self._gate: DemoGate | None = None

    def open(self, context: Context) -> Lake:
        from quacklake_demo.shop import demo_lake

        return demo_lake(self._folder)

    def open_gate(self, context: Context, tokens: Mapping[str, Role], anonymous: Role | None) -> Gate:
        from quacklake_demo.shop import DemoGate

        self._gate = DemoGate(self._folder, tokens, anonymous=anonymous)
        return self._gate

    def begin(self) -> None:
        if self._gate is not None:
            self._gate.begin()


serve_demo = DemoLake().serve
