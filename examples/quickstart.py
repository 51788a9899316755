"""A lake in a minute: make one, fill a table, change it, look back.

python examples/quickstart.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import quacklake


def main(directory: Path) -> None:
    with quacklake.connect(f"sqlite:///{directory / 'lake.db'}", data_path=directory / "data") as lake:
        # A table from rows; their types become the table's.
        books = lake.create_table(
            "books",
            [
                {"id": 1, "title": "The Dispossessed", "year": 1974, "copies": 2},
                {"id": 2, "title": "Solaris", "year": 1961, "copies": 1},
            ],
        )
        books.append([{"id": 3, "title": "Kindred", "year": 1979, "copies": 4}])

        # Python values are literals, expr() is SQL over the row.
        books.update({"copies": quacklake.expr("copies + 1")}, "year < 1970")
        result = books.merge(
            [
                {"id": 3, "title": "Kindred", "year": 1979, "copies": 5},
                {"id": 4, "title": "Roadside Picnic", "year": 1972, "copies": 3},
            ],
            on="id",
        )
        print(f"merged: {result.updated} updated, {result.inserted} inserted")
        books.delete("title = 'Solaris'")

        # A wrong row changes nothing.
        try:
            books.append([{"id": 5, "titel": "Ubik", "year": 1969, "copies": 1}])
        except quacklake.QuacklakeError as error:
            print(f"refused ({error.code}): {error}")

        books.show()
        for version in range(1, lake.current_snapshot() + 1):
            print(f"snapshot {version}: {lake.at(version=version).table('books').count()} books")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
