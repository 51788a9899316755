"""Tables of SQLAlchemy that are made when a statement first names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import sqlalchemy as sa


class LateTables(Mapping[str, sa.Table]):
    """Tables by name, each made when it is first asked for: a statement needs a few of eighty."""

    def __init__(self, makers: Mapping[str, Callable[[], sa.Table]]) -> None:
        self._makers = makers
        self._made: dict[str, sa.Table] = {}

    def __getitem__(self, name: str) -> sa.Table:
        found = self._made.get(name)
        return self._made.setdefault(name, self._makers[name]()) if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
