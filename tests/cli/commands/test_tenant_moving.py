"""``quacklake tenant export``, ``release``, ``adopt`` and ``fork``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import quacklake


def test_catalogs_are_moved_from_the_command_line(run: Any, tmp_path: Path) -> None:
    shared, plain, copied = (f"sqlite:///{tmp_path}/{name}.db" for name in ("s", "p", "c"))
    with quacklake.connect(shared, tmp_path / "data", catalog="acme") as lake:
        lake.create_table("t", {"a": list(range(30))})
    for words in (
        ("fork", "acme", "fork"),
        ("export", "acme", plain),
        ("export", "acme", copied, "--copy-data"),
        ("adopt", copied, "adopted"),
        ("release", "acme", plain),
    ):
        answer = run("tenant", *words, "--lake", shared)
        assert answer.code == 0, answer
    with quacklake.tenants(shared) as tenants:
        assert [tenant.name for tenant in tenants] == ["acme", "adopted", "fork"]
