"""Random queries of the grammar that materialized views follow, over the tables of ``tests.prove.views``."""

from __future__ import annotations

import random

__all__ = ["Queries"]

_AGGREGATES = (
    "count(*)",
    "count({p}x)",
    "sum({p}x)",
    "min({p}x)",
    "max({p}x)",
    "count(DISTINCT {p}x)",
    "sum({p}x) FILTER ({p}x > 3)",
    "bool_or({p}x > 5)",
    "bit_xor({p}x)",
    "max({p}k)",
    "sum({p}x) + count(*)",
    "median({p}x)",
)
#: Collations, and what each compares in the place of a text.
_COLLATIONS = {
    "NOCASE": "lower({})",
    "NOACCENT": "strip_accents({})",
    "NOCASE.NOACCENT": "lower(strip_accents({}))",
    "NFC": "nfc_normalize({})",
    "C": "{}",
}
_OF_A = ("avg(a.x)", "sum(a.f)", "sum(a.d)", "max(a.ts)", "avg(a.d)", "min(a.f)", "var_pop(a.x)", "histogram(a.g)")


class Queries:
    """Random queries of the grammar that views follow."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.plain: dict[str, str] = {}
        """Queries with one answer, for those that have several: by collations and by the order of equal rows."""

    def make(self, views: dict[str, list[str]]) -> tuple[str, list[str]]:
        """Return a query and the names of its columns; ``views`` are those that it may read."""
        kinds = [self._rows, self._groups, self._groups, self._join, self._union, self._distinct, self._total]
        kinds += [self._self_join, self._window, self._join, self._nested]
        kinds += [self._collated, self._collated, self._tied, self._odd]
        if views and self.chance.random() < 0.25:
            return self._over(views)
        return self.chance.choice(kinds)()

    def _where(self, p: str = "") -> str:
        found = self.chance.choice(
            ("", "", f"{p}x > 4", f"{p}k IS NOT NULL", f"{p}k IN ('p', 'q')", f"{p}id % 3 <> 0 OR {p}x IS NULL")
        )
        return f" WHERE {found}" if found else ""

    def _rows(self) -> tuple[str, list[str]]:
        items = self.chance.sample(["id", "k", "g", "ts", "x", "f", "d", "x * 2", "coalesce(k, 'none')", "f / 4"], 3)
        names = [f"c{n}" for n in range(3)]
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        return f"SELECT {listed} FROM a{self._where()}", names

    def _keys(self, p: str) -> list[str]:
        buckets = [f"date_trunc('hour', {p}ts)", f"time_bucket(INTERVAL '6 hours', {p}ts)", f"CAST({p}ts AS DATE)"]
        return self.chance.sample([f"{p}k", f"{p}g", f"{p}x % 3", *buckets], self.chance.choice((1, 1, 2, 3)))

    def _groups(self) -> tuple[str, list[str]]:
        p = "a."
        keys = self._keys(p)
        merging = self.chance.random() < 0.4
        known = _AGGREGATES[:5] if merging else (*_AGGREGATES, *_OF_A)
        made = [each.format(p=p) for each in self.chance.sample(known, self.chance.choice((1, 2, 3)))]
        if merging and self.chance.random() < 0.4:
            made = ["sum(a.x)", "count(a.x)", "avg(a.x)"]
        items = [*keys, *made]
        names = [f"c{n}" for n in range(len(items))]
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        numbers, aliases = ", ".join(str(n + 1) for n in range(len(keys))), ", ".join(names[: len(keys)])
        grouped = self.chance.choice(("ALL", ", ".join(keys), numbers, aliases))
        having = " HAVING count(*) > 2" if self.chance.random() < 0.2 else ""
        return f"SELECT {listed} FROM a{self._where(p)} GROUP BY {grouped}{having}", names

    def _joined(self) -> tuple[str, list[str]]:
        """Return FROM with a join, and the columns for keys."""
        kind = self.chance.choice(("JOIN", "LEFT JOIN"))
        first = f"a {kind} b ON a.id = b.id" if self.chance.random() < 0.6 else f"a {kind} b USING (id)"
        if self.chance.random() < 0.3:
            return f"{first} {self.chance.choice(('JOIN', 'LEFT JOIN'))} c ON c.k = a.k", [
                "a.k",
                "a.g",
                "b.name",
                "c.x",
            ]
        return first, ["a.k", "a.g", "b.name", "b.w"]

    def _join(self) -> tuple[str, list[str]]:
        source, columns = self._joined()
        where = self.chance.choice(("", "", " WHERE b.id IS NULL", " WHERE b.w > 2", " WHERE a.x > 3"))
        if self.chance.random() < 0.3:
            items = ["a.k", "a.x", *self.chance.sample(columns[2:], 1)]
            listed = ", ".join(f"{item} AS c{n}" for n, item in enumerate(items))
            return f"SELECT {listed} FROM {source}{where}", ["c0", "c1", "c2"]
        keys = ["a.k", *self.chance.sample(columns[1:], self.chance.choice((0, 1, 2)))]
        made = self.chance.choice((["count(*)"], ["sum(a.x)", "count(b.w)"], ["max(b.w)", "min(b.name)"]))
        items = [*keys, *made]
        listed = ", ".join(f"{item} AS c{n}" for n, item in enumerate(items))
        return f"SELECT {listed} FROM {source}{where} GROUP BY ALL", [f"c{n}" for n in range(len(items))]

    def _self_join(self) -> tuple[str, list[str]]:
        query = "SELECT l.k AS c0, count(*) AS c1 FROM c AS l JOIN c AS r ON l.id = r.id GROUP BY l.k"
        return query, ["c0", "c1"]

    def _nested(self) -> tuple[str, list[str]]:
        where = self._where()
        query = self.chance.choice(
            (
                f"WITH t AS (SELECT k AS key, x * 2 AS y FROM a{where} ) SELECT key AS c0, sum(y) AS c1 FROM t GROUP BY key",
                f"SELECT s.k AS c0, max(b.w) AS c1 FROM (SELECT id, k FROM a{where} ) AS s JOIN b ON s.id = b.id GROUP BY s.k",
                f"SELECT c0, c1 FROM (SELECT g AS c0, f / 2 AS c1, x FROM a{where} ) WHERE x < 9",
            )
        )
        return query, ["c0", "c1"]

    def _window(self) -> tuple[str, list[str]]:
        query = "SELECT k AS c0, id AS c1, sum(x) OVER (PARTITION BY k ORDER BY id, x) AS c2 FROM c"
        return query, ["c0", "c1", "c2"]

    def _collated(self) -> tuple[str, list[str]]:
        """Text that is compared by a collation; of a group the view shows the least spelling."""
        name, function = self.chance.choice(list(_COLLATIONS.items()))
        where, key = self._where("a."), f"a.k COLLATE {name}"
        compared = function.format("a.k")
        aggregate = self.chance.choice(("count(*)", "max(a.x)", "median(a.x)", "count(DISTINCT a.k)", "sum(a.x)"))
        kind = self.chance.randrange(6)
        if kind == 0:
            query, plain = (
                f"SELECT DISTINCT {key} AS c0, a.g AS c1 FROM a{where}",
                (f"SELECT min(a.k) AS c0, a.g AS c1 FROM a{where} GROUP BY {compared}, a.g"),
            )
        elif kind == 1:
            over = "sum(a.x) OVER (PARTITION BY {} ORDER BY a.id)"
            query, plain = (f"SELECT a.k AS c0, {over.format(each)} AS c1 FROM a{where}" for each in (key, compared))
        elif kind == 2:
            source = "FROM a JOIN b ON {} = {}"
            query = f"SELECT {key} AS c0, {aggregate} AS c1 {source.format(key, 'b.name')}{where} GROUP BY 1"
            plain = source.format(compared, function.format("b.name"))
            plain = f"SELECT min(a.k) AS c0, {aggregate} AS c1 {plain}{where} GROUP BY {compared}"
        elif kind == 3:
            query = f"SELECT {key} AS c0, a.x AS c1 FROM a{where}"
            plain = f"SELECT a.k AS c0, a.x AS c1 FROM a{where}"
        else:
            group = self.chance.choice(("1, 2", f"{key}, a.g", "c0, c1"))
            query = f"SELECT {key} AS c0, a.g AS c1, {aggregate} AS c2 FROM a{where} GROUP BY {group}"
            plain = f"SELECT min(a.k) AS c0, a.g AS c1, {aggregate} AS c2 FROM a{where} GROUP BY {compared}, a.g"
        self.plain[query] = plain
        return query, ["c0", "c1", "c2"] if " AS c2 " in query else ["c0", "c1"]

    def _tied(self) -> tuple[str, list[str]]:
        """A window whose ORDER BY leaves rows equal: these are ordered by what else the query reads."""
        function = self.chance.choice(("lag(id)", "row_number()", "sum(id)", "nth_value(id, 2)", "ntile(3)"))
        frame = " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW" if function[:3] in ("sum", "nth") else ""
        query = "SELECT k AS c0, id AS c1, {} OVER (PARTITION BY k ORDER BY x{}) AS c2 FROM c"
        made = query.format(function, frame)
        self.plain[made] = query.format(function, f", id NULLS LAST{frame}")
        return made, ["c0", "c1", "c2"]

    def _odd(self) -> tuple[str, list[str]]:
        """Keys of which equal values differ."""
        query = self.chance.choice(
            (
                "SELECT f AS c0, count(*) AS c1 FROM a{where} GROUP BY f",
                "SELECT i AS c0, median(x) AS c1 FROM a{where} GROUP BY i",
                "SELECT i AS c0, count(*) AS c1 FROM a{where} GROUP BY ALL",
                "SELECT DISTINCT f AS c0, i AS c1 FROM a{where} ",
                "SELECT f AS c0, sum(x) OVER (PARTITION BY f) AS c1 FROM a{where} ",
                "SELECT [f] AS c0, count(*) AS c1 FROM a{where} GROUP BY 1",
                "SELECT {{'f': f, 'i': i}} AS c0, max(x) AS c1 FROM a{where} GROUP BY 1",
                "SELECT i AS c0, f AS c1 FROM a{where} ",
            )
        )
        return query.format(where=self._where()), ["c0", "c1"]

    def _union(self) -> tuple[str, list[str]]:
        if self.chance.random() < 0.5:
            query = "SELECT k AS c0, x AS c1 FROM a WHERE x > 2 UNION ALL SELECT k, x FROM c"
        else:
            query = (
                "SELECT k AS c0, sum(x) AS c1 FROM a GROUP BY k UNION ALL SELECT name, count(*) FROM b GROUP BY name"
            )
        return query, ["c0", "c1"]

    def _distinct(self) -> tuple[str, list[str]]:
        return f"SELECT DISTINCT k AS c0, g AS c1 FROM a{self._where()}", ["c0", "c1"]

    def _total(self) -> tuple[str, list[str]]:
        query = f"SELECT count(*) AS c0, sum(x) AS c1, max(k) AS c2 FROM {self.chance.choice('ac')}{self._where()}"
        return query, ["c0", "c1", "c2"]

    def _over(self, views: dict[str, list[str]]) -> tuple[str, list[str]]:
        name = self.chance.choice(sorted(views))
        first, last = views[name][0], views[name][-1]
        if self.chance.random() < 0.4:
            return f"SELECT {first} AS c0, {last} AS c1 FROM {name}", ["c0", "c1"]
        return f"SELECT {first} AS c0, count(*) AS c1, max({last}) AS c2 FROM {name} GROUP BY {first}", [
            "c0",
            "c1",
            "c2",
        ]
