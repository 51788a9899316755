"""Random histories of users, roles, grants, policies and tables, against a model of a few lines of who sees what."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import quacklake
from quacklake import Lake
from quacklake.errors import NotFoundError
from tests.seeds import chance, some

USERS, ROLES = ("ann", "bob", "eve"), ("team", "crew", "boss")
BUILT_IN = {"reader": True, "writer": True, "admin": True}
COLUMNS = ("id", "grp", "note")
FILTERS: dict[str, Callable[[int, str], bool]] = {
    "id < 3": lambda id_, grp: id_ < 3,
    "grp = 'a'": lambda id_, grp: grp == "a",
    "false": lambda id_, grp: False,
    "id % 2 = 0 AND grp <> 'c'": lambda id_, grp: id_ % 2 == 0 and grp != "c",
}
MASK = "'masked'"


@dataclass
class Table:
    """A table of the model: its name, and how many were made before it."""

    schema: str
    name: str
    number: int
    rows: list[tuple[int, str, str]]
    names: dict[str, str] = field(default_factory=lambda: {column: column for column in COLUMNS})

    @property
    def full(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass
class Model:
    """The rules, and the tables by number."""

    tables: dict[int, Table] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)
    members: set[tuple[str, str]] = field(default_factory=set)
    grants: set[tuple[str, str, str | None]] = field(default_factory=set)
    """Grantee, what it is for ("lake", a schema, or the number of a table), and a column."""
    filters: dict[tuple[int, str], tuple[str, str | None]] = field(default_factory=dict)
    masks: set[tuple[int, str | None]] = field(default_factory=set)

    def sees(self, user: str, table: Table) -> list[tuple[object, ...]] | None:
        """Return the rows that a user sees of a table, None for no table at all."""
        mine = {user}
        for _ in range(5):
            mine |= {role for role, member in self.members if member in mine}
        if user in self.disabled:
            mine = set()
        places = {place for grantee, place, column in self.grants if grantee in mine and column is None}
        whole = bool(mine & BUILT_IN.keys() or places & {"lake", table.schema, str(table.number)})
        some_ = {c for grantee, place, c in self.grants if grantee in mine and place == str(table.number)}
        columns = [c for c in COLUMNS if whole or c in some_]
        if not columns:
            return None
        rules = [rule for (number, _), rule in self.filters.items() if number == table.number]
        keeps = [FILTERS[text] for text, role in rules if role is None or role in mine]
        hidden = sum(number == table.number and (role is None or role in mine) for number, role in self.masks)
        if "admin" in mine:
            rules, hidden = [], 0
        note = {0: None, 1: "masked"}.get(hidden, "nothing")
        rows = [row for row in table.rows if not rules or any(keep(row[0], row[1]) for keep in keeps)]
        shown = [dict(zip(COLUMNS, (*row[:2], row[2] if note is None else note), strict=True)) for row in rows]
        return sorted(tuple(None if row[c] == "nothing" else row[c] for c in columns) for row in shown)


class History:
    """A lake and its model, changed together."""

    def __init__(self, lake: Lake, numbers: random.Random) -> None:
        self.lake, self.numbers, self.model, self.made = lake, numbers, Model(), 0
        lake.create_schema("s")
        for user in USERS:
            lake.access.create_user(user)
        for role in ROLES:
            lake.access.create_role(role)
        for schema, name in (("main", "t"), ("s", "u"), ("main", "v")):
            self.create(schema, name)

    def create(self, schema: str, name: str) -> None:
        self.made += 1
        rows = [(i, self.numbers.choice("abc"), f"n{i}") for i in range(self.numbers.randrange(1, 6))]
        table = Table(schema, name, self.made, rows)
        self.model.tables[self.made] = table
        self.lake.create_table(table.full, {"id": "BIGINT", "grp": "VARCHAR", "note": "VARCHAR"})
        self.lake.table(table.full).append([dict(zip(COLUMNS, row, strict=True)) for row in rows])

    def step(self) -> str:
        numbers, model, access = self.numbers, self.model, self.lake.access
        user, role = numbers.choice(USERS), numbers.choice(ROLES)
        who = numbers.choice([user, role])
        table = numbers.choice(list(model.tables.values()))
        to = numbers.choice([None, None, role])
        match numbers.randrange(14):
            case 0 | 1:
                member = numbers.choice([*USERS, *ROLES])
                wide = numbers.choice([*ROLES, role, "reader", "admin" if numbers.random() < 0.2 else "writer"])
                if member != wide:
                    access.add_member(wide, member)
                    model.members.add((wide, member))
                return f"{wide} to {member}"
            case 2 | 3 if model.members:
                found = numbers.choice(sorted(model.members))
                access.remove_member(*found)
                model.members.discard(found)
                return f"{found[0]} from {found[1]}"
            case 4 | 5:
                place = numbers.choice(["lake", table.schema, *[str(table.number)] * 3])
                column = numbers.choice([None, *COLUMNS]) if place == str(table.number) else None
                access.grant("SELECT", who, **self._place(place, table), columns=column)
                model.grants.add((who, place, column))
                return f"grant {place} {column} to {who}"
            case 6 | 7 if model.grants:
                grantee, place, column = numbers.choice(sorted(model.grants, key=str))
                known = model.tables.get(int(place)) if place.isdigit() else table
                if known is None:
                    return "a grant on a table that is gone"
                access.revoke("SELECT", grantee, **self._place(place, known), columns=column)
                model.grants.discard((grantee, place, column))
                return f"revoke {place} {column} from {grantee}"
            case 8:
                text, name = numbers.choice(list(FILTERS)), f"p{numbers.randrange(3)}"
                if (table.number, name) not in model.filters:
                    access.create_policy(name, table.full, text, to=to)
                    model.filters[table.number, name] = (text, to)
                return f"filter {text} on {table.full} to {to}"
            case 9 if model.filters:
                number, name = numbers.choice(sorted(model.filters))
                access.drop_policy(name, model.tables[number].full)
                del model.filters[number, name]
                return f"drop filter {name} of {number}"
            case 10:
                if (table.number, to) not in model.masks:
                    access.create_mask(table.full, "note", MASK, to=to)
                    model.masks.add((table.number, to))
                return f"mask {table.full} to {to}"
            case 11 if model.masks:
                number, to = numbers.choice(sorted(model.masks, key=str))
                access.drop_mask(model.tables[number].full, "note", to=to)
                model.masks.discard((number, to))
                return f"drop mask of {number}"
            case 12:
                if user in model.disabled:
                    access.enable_user(user)
                    model.disabled.discard(user)
                else:
                    access.disable_user(user)
                    model.disabled.add(user)
                return f"switch {user}"
            case _:
                old, table.name = table.full, f"{table.name[0]}{self.made}{numbers.randrange(10**6)}"
                self.lake.rename_table(old, table.name)
                return f"rename {old} to {table.name}"

    def _place(self, place: str, table: Table) -> dict[str, str]:
        if place == "lake":
            return {}
        return {"table": table.full} if place.isdigit() else {"schema": place}

    def replace(self) -> str:
        """Replace a table by another of its name: grants go, and policies stay."""
        table = self.numbers.choice(list(self.model.tables.values()))
        self.lake.drop_table(table.full)
        del self.model.tables[table.number]
        self.create(table.schema, table.name)
        model = self.model
        model.filters = {
            (self.made if n == table.number else n, name): rule for (n, name), rule in model.filters.items()
        }
        model.masks = {(self.made if number == table.number else number, role) for number, role in model.masks}
        return f"replace {table.full}"

    def check(self, told: list[str]) -> None:
        for user in USERS:
            principal = self.lake.as_principal(user)
            for table in self.model.tables.values():
                wanted = self.model.sees(user, table)
                seen = principal.table(table.full)
                if wanted is None:
                    with pytest.raises(NotFoundError):
                        seen.to_arrow()
                    continue
                found = sorted(tuple(row.values()) for row in seen.to_arrow().to_pylist())
                assert found == wanted, (user, table.full, told)
                assert seen.count() == len(wanted), (user, table.full, told)


@pytest.mark.parametrize("number", some(range(60), 4, "histories of grants"))
def test_users_see_what_the_model_says_after_any_history_of_grants(number: int, tmp_path: Path) -> None:
    numbers = chance("histories of grants", number)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        history, told = History(lake, numbers), []
        for step in range(40):
            told.append(history.replace() if numbers.random() < 0.05 else history.step())
            if step % 5 == 4:
                history.check(told)
