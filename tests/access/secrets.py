"""A lake with things that nobody but an administrator may see, and users who try."""

from __future__ import annotations

from pathlib import Path

import quacklake
from quacklake import Lake

CANARY = "CANARY"
"""Every hidden text contains it."""
NUMBER = 987_654_321
"""Every hidden number is this one."""
MARKS = (CANARY, str(NUMBER))
#: Users who are no administrators, with what they may see of ``people`` at all.
USERS = {"ann": 4, "bob": 0, "wil": 5, "rea": 5}


def fill(folder: Path, **settings: object) -> Lake:
    """Return a new lake with secrets in rows, columns, tables, schemas, views, statistics and history."""
    lake = quacklake.connect(f"sqlite:///{folder / 'lake.db'}", data_path=str(folder / "data"), **settings)  # type: ignore[arg-type]
    lake.sql("CREATE TABLE people (id BIGINT, region VARCHAR, ssn VARCHAR, salary BIGINT, note VARCHAR)")
    people = f"""
        SELECT i, CASE WHEN i % 3 = 0 THEN 'XX{CANARY}' ELSE 'EU' END, '{CANARY} ssn ' || i, {NUMBER},
            CASE WHEN i % 3 = 0 THEN '{CANARY} note ' || i ELSE 'note ' || i END
        FROM range({{}}, {{}}) r(i)
    """
    lake.sql(f"INSERT INTO people {people.format(0, 60)}")
    lake.sql(f"INSERT INTO people {people.format(60, 65)}")  # inlined
    lake.sql("UPDATE people SET note = note || '!' WHERE id < 6")
    lake.sql("DELETE FROM people WHERE id IN (9, 10)")
    lake.sql(f"CREATE TABLE vault (secret VARCHAR, number BIGINT DEFAULT {NUMBER})")
    lake.sql(f"INSERT INTO vault SELECT '{CANARY} ' || i, {NUMBER} FROM range(30) r(i)")
    lake.create_schema("deep")
    lake.sql(f"CREATE TABLE deep.well AS SELECT '{CANARY}' AS secret")
    lake.sql("CREATE VIEW everybody AS SELECT id, region, ssn, note FROM people")
    lake.sql("CREATE VIEW vault_view AS SELECT * FROM vault")
    lake.sql(f"CREATE VIEW telling AS SELECT id FROM people WHERE note <> '{CANARY}'")
    lake.create_macro("of_vault", [], "SELECT * FROM vault", table=True)
    lake.sql(
        "CREATE MATERIALIZED VIEW totals AS"
        " SELECT region, max(note) AS last, count(*) AS n, max(salary) AS most FROM people GROUP BY region"
    )
    lake.table("vault").set_comment(f"{CANARY} comment")
    with lake.transaction(message=f"{CANARY} message", author=f"{CANARY} author") as tx:
        tx.table("vault").append([{"secret": CANARY, "number": NUMBER}])
    access = lake.access
    for name in USERS:
        access.create_user(name)
    access.create_user("root", ["admin"])
    access.create_role("auditor")
    access.grant("SELECT", "ann", table="people", columns=["id", "region", "ssn", "note"])
    access.grant("SELECT", "ann", table="everybody")
    access.grant("SELECT", "ann", table="vault_view")
    access.grant("SELECT", "ann", table="telling")
    access.add_member("writer", "wil")
    access.add_member("reader", "rea")
    access.create_policy("europe", "people", "region = 'EU'")
    access.create_mask("people", "ssn", "'***' || right(ssn, 0)")
    access.create_mask("people", "salary", "0")
    access.create_policy("nobody", "vault", "has_role('auditor')")
    access.create_policy("nobody", "deep.well", "false")
    return lake


def shown(error: BaseException) -> str:
    """Return all that an error tells, with what caused it."""
    parts = []
    found: BaseException | None = error
    while found is not None:
        parts.append(f"{found!r} {found} {getattr(found, 'hint', '')} {getattr(found, 'message', '')}")
        found = found.__cause__ or found.__context__
    return " ".join(parts)
