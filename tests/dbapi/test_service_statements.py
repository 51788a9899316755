"""Random statements through a service, and in the process on a lake with the same rows: the answers are the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake import dbapi
from tests import seeds
from tests.prove.sentences import LITERALS, Sentence, Sentences, Table, tables_of
from tests.service.serving import served

_STATEMENTS = 500 if seeds.LONG else 15


def fill(lake: quacklake.Lake, tables: list[Table], seed: str) -> None:
    """Make tables, and rows that depend on the seed alone."""
    chance = random.Random(seed)
    with dbapi.connect(lake, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA s1; CREATE TABLE k (id INTEGER PRIMARY KEY, a INTEGER, b VARCHAR)")
        connection.execute("INSERT INTO k VALUES (1, 1, 'a'), (2, NULL, ''), (3, 3, NULL), (9, 9, '9')")
        for table in tables:
            connection.execute(f"CREATE TABLE {table.path} ({', '.join(f'{c.name} {c.type}' for c in table.columns)})")
            rows = (
                ", ".join(
                    [str(number), *(chance.choice(("NULL", *LITERALS[column.type])) for column in table.columns[1:])]
                )
                for number in range(12)
            )
            connection.execute(f"INSERT INTO {table.path} VALUES {', '.join(f'({row})' for row in rows)}")


def outcome(connection: dbapi.Connection, sentence: Sentence) -> Any:
    """Return the columns, the number of changed rows and the rows of a statement, or the class and code of its error.

    A safe session quotes some words in the titles of columns without a name.
    """
    try:
        cursor = connection.execute(sentence.sql, sentence.params)
        rows = cursor.fetchall() if cursor.description is not None else []
        columns = [(name.replace(chr(34), ""), type_) for name, type_, *_ in cursor.description or ()]
        return columns, cursor.rowcount, sorted(map(repr, rows))
    except dbapi.Error as error:
        return type(error), error.code


@pytest.mark.daily(0.5)
def test_random_statements_answer_as_in_the_process(tmp_path: Path) -> None:
    seed = f"{seeds.SEED} statements of a service"
    chance = random.Random(seed)
    tables = tables_of(chance)
    lakes = [
        quacklake.connect(f"sqlite:///{tmp_path}/{name}.db", data_path=tmp_path / name, duckdb_threads=1)
        for name in ("served", "local")
    ]
    for lake in lakes:
        fill(lake, tables, seed)
    sentences, answered = Sentences(chance, tables), 0
    with served(lakes[0]) as found, dbapi.connect(lakes[1], autocommit=True) as local:
        with dbapi.connect(found.url, token="writer-token") as remote:
            for _ in range(_STATEMENTS):
                sentence = sentences.next()
                if sentence.prepare:
                    continue
                wanted = outcome(local, sentence)
                assert outcome(remote, sentence) == wanted, (sentence.sql, sentence.params)
                answered += len(wanted) == 3
            for table in tables:
                look = Sentence(f"FROM {table.path}")
                assert outcome(remote, look) == outcome(local, look)
    lakes[1].close()
    assert answered > _STATEMENTS / 3
