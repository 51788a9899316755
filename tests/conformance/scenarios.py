"""The histories that every catalog, inlining setting and direction goes through: name -> steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from .steps import (
    AddColumn,
    AlterColumn,
    Append,
    Create,
    CreateFrom,
    CreateSchema,
    Delete,
    Drop,
    DropColumn,
    DropSchema,
    Merge,
    Overwrite,
    Rename,
    RenameColumn,
    SetDefault,
    SetNullable,
    Step,
    Stock,
    Together,
    Update,
)

__all__ = ["SCENARIOS", "VALUES"]


def numbers(first: int, count: int) -> str:
    """Rows (id, name, amount) of which some have NULLs."""
    return (
        f"SELECT i::INTEGER AS id, CASE WHEN i % 7 = 0 THEN NULL ELSE 'name ' || i END AS name,"
        f" CASE WHEN i % 5 = 0 THEN NULL ELSE i / 8 END AS amount FROM range({first}, {first + count}) r(i)"
    )


THINGS = Create("things", "id INTEGER NOT NULL, name VARCHAR, amount DOUBLE")

INSERTS: Sequence[Step] = [
    THINGS,
    Append("things", numbers(0, 1)),
    Append("things", numbers(1, 9)),
    Append("things", numbers(10, 300)),
    Append("things", numbers(310, 10)),
    Append("things", numbers(320, 11)),
    CreateFrom("copies", numbers(0, 4)),
    CreateFrom("more", numbers(0, 40)),
    Append("copies", numbers(4, 2)),
]

DELETES: Sequence[Step] = [
    THINGS,
    Append("things", numbers(0, 300)),
    Append("things", numbers(300, 8)),
    Append("things", numbers(400, 20)),
    Delete("things", "id = 17"),
    Delete("things", "id IN (18, 19, 302)"),
    Delete("things", "id BETWEEN 100 AND 149"),
    Delete("things", "id BETWEEN 120 AND 179 OR id = 303"),
    Delete("things", "id % 10 = 3 AND id < 100"),
    Delete("things", "id = 21"),
    Delete("things", "id >= 400"),
    Delete("things", "name IS NULL"),
    Delete("things", "id BETWEEN 300 AND 309"),
    Append("things", numbers(500, 3)),
    Delete("things", "id < 290 OR id = 501"),
    Delete("things"),
    Append("things", numbers(600, 15)),
]

UPDATES: Sequence[Step] = [
    THINGS,
    Append("things", numbers(0, 200)),
    Append("things", numbers(200, 6)),
    Update("things", {"name": "'one'"}, "id = 5"),
    Update("things", {"amount": "amount * 2", "name": "upper(name)"}, "id IN (5, 6, 201)"),
    Update("things", {"name": "NULL"}, "id BETWEEN 50 AND 90"),
    Update("things", {"name": "'again'"}, "id BETWEEN 85 AND 95 OR id = 5"),
    Delete("things", "id BETWEEN 88 AND 92 OR id = 6"),
    Update("things", {"amount": "id"}),
    Delete("things", "id IN (5, 7, 201)"),
    Update("things", {"amount": "-1"}, "id > 195"),
]

MERGES: Sequence[Step] = [
    THINGS,
    Merge("things", numbers(0, 5), "id"),
    Merge("things", numbers(5, 100), "id"),
    Merge("things", f"SELECT * REPLACE ('merged' AS name) FROM ({numbers(3, 4)})", "id"),
    Merge("things", f"SELECT * REPLACE ('merged twice' AS name) FROM ({numbers(90, 40)})", "id"),
    Merge("things", f"SELECT * REPLACE (0 AS amount) FROM ({numbers(104, 3)})", "id"),
    Delete("things", "id IN (4, 104)"),
    Merge("things", numbers(0, 200), "id"),
]

REPLACEMENTS: Sequence[Step] = [
    THINGS,
    Append("things", numbers(0, 100)),
    Append("things", numbers(100, 5)),
    Overwrite("things", numbers(1000, 4)),
    Overwrite("things", numbers(2000, 60)),
    Overwrite("things", numbers(3000, 20), "id < 2010"),
    Overwrite("things", numbers(4000, 2), "id >= 3010"),
    Delete("things"),
    Append("things", numbers(0, 3)),
    Delete("things"),
    Append("things", numbers(0, 30)),
]

TRANSACTIONS: Sequence[Step] = [
    THINGS,
    Together(
        [
            CreateSchema("sales"),
            Create("sales.orders", "id BIGINT, total DECIMAL(12,2)"),
            Append("sales.orders", "SELECT i, (i / 3)::DECIMAL(12,2) FROM range(5) r(i)"),
            Append("things", numbers(0, 50)),
            Create("empty", "x INTEGER"),
        ]
    ),
    Together([Append("things", numbers(50, 4)), Append("things", numbers(54, 4)), Delete("things", "id IN (3, 51)")]),
    Together([Append("things", numbers(60, 20)), Update("things", {"name": "'new'"}, "id IN (1, 61, 55)")]),
    Together([Append("things", numbers(80, 3)), Delete("things", "id >= 80")]),
    Together([Append("things", numbers(90, 30)), Delete("things", "id >= 90"), Append("things", numbers(200, 1))]),
    Together(
        [
            Delete("things", "id < 10"),
            Append("sales.orders", "SELECT 100, 1.25::DECIMAL(12,2)"),
            Delete("sales.orders", "id = 2"),
        ]
    ),
    Together([Drop("empty"), Create("empty", "y VARCHAR, z INTEGER"), Append("empty", "SELECT 'y', 1")]),
    Together([Rename("empty", "full"), Append("full", "SELECT 'x', 2"), Append("things", numbers(300, 2))]),
    Together([Delete("full"), Append("full", "SELECT 'only', 3")]),
    Together([DropSchema("sales"), Delete("things", "id < 60")]),
]

NAMES: Sequence[Step] = [
    THINGS,
    Append("things", numbers(0, 5)),
    Rename("things", "stuff"),
    Append("stuff", numbers(5, 3)),
    Append("stuff", numbers(8, 20)),
    Create("things", "other VARCHAR"),
    Append("things", "SELECT 'other'"),
    Drop("stuff"),
    Rename("things", "stuff"),
    CreateSchema("Größe. \"x\", 'y'"),
    Create('"Größe. ""x"", \'y\'"."tab, ""le"" 表"', '"a ""b"", c" INTEGER, "select" VARCHAR, "Ünï" DATE'),
    Append('"Größe. ""x"", \'y\'"."tab, ""le"" 表"', "SELECT i, 's' || i, DATE '2024-01-01' FROM range(3) r(i)"),
    Append('"Größe. ""x"", \'y\'"."tab, ""le"" 表"', "SELECT i, 's' || i, DATE '2024-01-01' FROM range(30) r(i)"),
    Update('"Größe. ""x"", \'y\'"."tab, ""le"" 表"', {'a "b", c': '"a ""b"", c" + 1'}, "\"select\" = 's2'"),
    DropSchema("Größe. \"x\", 'y'"),
    CreateSchema("Größe. \"x\", 'y'"),
    Drop("stuff"),
    Create("stuff", "id INTEGER"),
]

EVOLUTION: Sequence[Step] = [
    Create("things", "id INTEGER, name VARCHAR, spot STRUCT(x INTEGER, label VARCHAR), small SMALLINT"),
    Append("things", "SELECT i, 'n' || i, {'x': i, 'label': 'l' || i}, i FROM range(3) r(i)"),
    Append("things", "SELECT i, 'n' || i, {'x': i, 'label': NULL::VARCHAR}, -i FROM range(10, 40) r(i)"),
    AddColumn("things", "grade", "INTEGER", 7),
    Append("things", "SELECT i, 'g' || i, NULL::STRUCT(x INTEGER, label VARCHAR), i, i FROM range(50, 54) r(i)"),
    Append("things", "SELECT i, 'g' || i, NULL::STRUCT(x INTEGER, label VARCHAR), i, NULL FROM range(60, 80) r(i)"),
    RenameColumn("things", "name", "title"),
    Update("things", {"title": "upper(title)"}, "id IN (1, 11, 51, 61)"),
    AlterColumn("things", "small", "BIGINT"),
    Append("things", "SELECT i, 'b' || i, {'x': 1, 'label': 'b'}, 5000000000 + i, 1 FROM range(90, 92) r(i)"),
    Append("things", "SELECT i, 'b' || i, {'x': 1, 'label': 'b'}, 5000000000 + i, 1 FROM range(100, 120) r(i)"),
    DropColumn("things", "spot"),
    Delete("things", "id IN (2, 12, 52, 91, 105)"),
    Update("things", {"grade": "coalesce(grade, 0) + 1"}, "id % 2 = 0"),
    AddColumn("things", "name", "VARCHAR", "it's"),
    Append("things", "SELECT 200, 't', 1, 2, 'named'"),
    Delete("things", "name = 'it''s' AND id > 110"),
    Append("things", "SELECT 300, 't', 3", ("id", "title", "small")),
    SetDefault("things", "grade", 9),
    SetNullable("things", "id", False),
    Append("things", "SELECT i, 't', i FROM range(310, 312) r(i)", ("id", "title", "small")),
    SetDefault("things", "grade", None),
    SetNullable("things", "id", True),
    Append(
        "things", "SELECT NULL::INTEGER, 'x' || i, 2, NULL FROM range(400, 420) r(i)", ("id", "title", "small", "grade")
    ),
]

FIELDS: Sequence[Step] = [
    Create(
        "things",
        "id INTEGER, s STRUCT(a SMALLINT, b VARCHAR, c STRUCT(d INTEGER)), l STRUCT(p SMALLINT, q VARCHAR)[],"
        " m MAP(VARCHAR, STRUCT(x INTEGER, y VARCHAR))",
    ),
    Append(
        "things",
        "SELECT i, {'a': i, 'b': 'b' || i, 'c': {'d': i}}, [{'p': i, 'q': 'q'}, NULL], MAP {'k': {'x': i, 'y': 'y'}}"
        " FROM range(3) r(i)",
    ),
    Append(
        "things",
        "SELECT i, {'a': i, 'b': NULL::VARCHAR, 'c': NULL::STRUCT(d INTEGER)}, [{'p': i, 'q': 'q' || i}], MAP {'k' || i: {'x': i, 'y': NULL::VARCHAR}}"
        " FROM range(10, 40) r(i)",
    ),
    Append(
        "things",
        "SELECT 4, NULL::STRUCT(a SMALLINT, b VARCHAR, c STRUCT(d INTEGER)), NULL::STRUCT(p SMALLINT, q VARCHAR)[],"
        " NULL::MAP(VARCHAR, STRUCT(x INTEGER, y VARCHAR))",
    ),
    AddColumn("things", "s.e", "INTEGER", 5),
    RenameColumn("things", "s.b", "bb"),
    AlterColumn("things", "s", "STRUCT(a INTEGER, bb VARCHAR, c STRUCT(d INTEGER), e INTEGER)"),
    Append(
        "things",
        "SELECT i, {'a': i * 1000, 'bb': 'n', 'c': {'d': 1}, 'e': i}, []::STRUCT(p SMALLINT, q VARCHAR)[],"
        " MAP {}::MAP(VARCHAR, STRUCT(x INTEGER, y VARCHAR)) FROM range(50, 52) r(i)",
    ),
    AddColumn("things", "l.element.r", "BIGINT"),
    RenameColumn("things", "l.element.p", "pp"),
    DropColumn("things", "m.value.x"),
    AddColumn("things", "m.value.z", "DATE"),
    Append(
        "things",
        "SELECT i, {'a': i, 'bb': 'n', 'c': {'d': 1}, 'e': i}, [{'pp': 1, 'q': 'q', 'r': i}],"
        " MAP {'k': {'y': 'y', 'z': DATE '2024-01-01'}} FROM range(60, 80) r(i)",
    ),
    Update("things", {"id": "id + 1000"}, "id IN (1, 11, 51, 61)"),
    DropColumn("things", "s.bb"),
    AddColumn("things", "s.b", "DOUBLE"),
    AddColumn("things", "s.c.f", "VARCHAR"),
    Delete("things", "id IN (2, 12, 62)"),
    Append(
        "things",
        "SELECT 90, {'a': 1, 'c': {'d': 1, 'f': 'f'}, 'e': 2, 'b': 1.5}, NULL::STRUCT(pp SMALLINT, q VARCHAR, r BIGINT)[],"
        " NULL::MAP(VARCHAR, STRUCT(y VARCHAR, z DATE))",
    ),
    RenameColumn("things", "s.c.d", "dd"),
    DropColumn("things", "l.element.q"),
    Stock("CALL ducklake_flush_inlined_data('l')"),
    Stock("CALL ducklake_merge_adjacent_files('l')"),
    Stock("CALL ducklake_rewrite_data_files('l', delete_threshold => 0.01)"),
    RenameColumn("things", "s", "t"),
    Delete("things", "t.a = 13"),
    Update("things", {"id": "id + 2000"}, "id IN (20, 64)"),
]

EVOLVING: Sequence[Step] = [
    Create("things", "id INTEGER, name VARCHAR, s STRUCT(a INTEGER, b VARCHAR)"),
    Append("things", "SELECT i, 'n' || i, {'a': i, 'b': 'b'} FROM range(20) r(i)"),
    Append("things", "SELECT i, 'n' || i, {'a': i, 'b': 'b'} FROM range(20, 23) r(i)"),
    Together(
        [
            Append("things", "SELECT i, 'm' || i, {'a': i, 'b': 'm'} FROM range(30, 32) r(i)"),
            AddColumn("things", "n", "INTEGER", 3),
            Append("things", "SELECT i, 'm' || i, {'a': i, 'b': 'm'}, i FROM range(40, 42) r(i)"),
            DropColumn("things", "name"),
            RenameColumn("things", "id", "key"),
        ]
    ),
    Together(
        [
            Append("things", "SELECT i, {'a': i, 'b': 'm'}, i FROM range(50, 80) r(i)"),
            RenameColumn("things", "s.a", "x"),
            RenameColumn("things", "s.b", "a"),
            AlterColumn("things", "key", "BIGINT"),
            Append("things", "SELECT 5000000000, {'x': 1, 'a': 'z'}, 1"),
        ]
    ),
    Together(
        [
            AddColumn("things", "z", "INTEGER"),
            Delete("things", "key IN (3, 21, 31, 55)"),
            DropColumn("things", "z"),
            AddColumn("things", "z", "VARCHAR", "z"),
            Delete("things", "key IN (4, 56)"),
        ]
    ),
    Together(
        [
            Create("made", "i INTEGER, j INTEGER"),
            Append("made", "SELECT 1, 2"),
            AddColumn("made", "k", "VARCHAR", "k"),
            Append("made", "SELECT i, i, 'x' FROM range(30) r(i)"),
            DropColumn("made", "j"),
            Rename("made", "done"),
        ]
    ),
    Together(
        [
            Create("deep", "s STRUCT(a INTEGER, b VARCHAR)"),
            Append("deep", "SELECT {'a': i, 'b': 'b' || i} FROM range(30) r(i)"),
            RenameColumn("deep", "s.a", "x"),
            RenameColumn("deep", "s.b", "a"),
        ]
    ),
    Append("deep", "SELECT {'x': i, 'a': 'b' || i} FROM range(30, 60) r(i)"),
    Together([Drop("things"), Create("things", "other DATE"), AddColumn("things", "more", "TIME")]),
]

MAINTENANCE: Sequence[Step] = [
    THINGS,
    Append("things", numbers(0, 4)),
    Append("things", numbers(4, 5)),
    Append("things", numbers(10, 60)),
    Delete("things", "id IN (2, 11, 12)"),
    Update("things", {"name": "'updated'"}, "id IN (3, 13)"),
    Stock("CALL ducklake_flush_inlined_data('l')"),
    Append("things", numbers(100, 3)),
    Delete("things", "id IN (4, 14, 15, 101)"),
    Append("things", numbers(200, 30)),
    Update("things", {"amount": "0"}, "id BETWEEN 20 AND 35"),
    Stock("CALL ducklake_merge_adjacent_files('l')"),
    Delete("things", "id IN (6, 21, 40, 205)"),
    Delete("things", "id BETWEEN 41 AND 60"),
    Update("things", {"name": "'late'"}, "id % 9 = 0"),
    Stock("CALL ducklake_flush_inlined_data('l')"),
    Stock("CALL ducklake_rewrite_data_files('l', delete_threshold => 0.1)"),
    Stock("CALL ducklake_merge_adjacent_files('l')"),
    Delete("things", "id IN (1, 66, 210)"),
    Append("things", numbers(300, 20)),
    Delete("things", "id BETWEEN 60 AND 305"),
]


def _values(columns: str, rows: str) -> Sequence[Step]:
    """Rows of special values, few and many, deleted and updated; the first column is an integer ``k``."""
    typed = ", ".join(f"col{number}::{type_} AS col{number}" for number, type_ in enumerate(_types(columns), 1))
    few = f"SELECT col0::INTEGER AS col0, {typed} FROM (VALUES {rows}) v"
    many = f"SELECT v.* REPLACE ((v.col0 + 100 * i)::INTEGER AS col0) FROM ({few}) v, range(1, 9) r(i)"
    return [
        Create("kinds", f"k INTEGER, {columns}"),
        Append("kinds", few),
        Append("kinds", many),
        Delete("kinds", "k % 100 = 1"),
        Append("kinds", f"{few} WHERE col0 = 0"),
        Update("kinds", {"k": "k + 1000"}, "k % 100 = 2"),
        Update("kinds", {"k": "k + 5000"}, "k < 700"),
    ]


def _types(columns: str) -> list[str]:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t({columns})")
        return [row[1] for row in connection.execute("DESCRIBE t").fetchall()]


TEXTS = _values(
    "s VARCHAR, j JSON, b BLOB",
    """(0, '', '{}'::JSON, ''::BLOB),
       (1, NULL, NULL, NULL),
       (2, 'Zürich ☃ 鴨 👩‍🚀', '{"ü": [1, 2.50, null]}', '\\x00\\x01\\xFF\\x00'::BLOB),
       (3, 'it''s "quoted", \\n\\ and\nnew\tlines', ' "text" ', 'plain'::BLOB),
       (4, 'null', 'null', '00FF'::BLOB),
       (5, repeat('long ', 200), '[]', repeat('\\xAB', 300)::BLOB),
       (6, '%_''; DROP TABLE kinds; --', '"\\u0000"', '\\x5C\\x22'::BLOB),
       (7, ' trailing ', '0', '\\x00'::BLOB)""",
)

INTEGERS = _values(
    "t TINYINT, s SMALLINT, i INTEGER, b BIGINT, h HUGEINT, ut UTINYINT, us USMALLINT, ui UINTEGER, ub UBIGINT, f BOOLEAN",
    """(0, -128, -32768, -2147483648, -9223372036854775808, -1267650600228229401496703205376::HUGEINT, 0, 0, 0, 0, false),
       (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
       (2, 127, 32767, 2147483647, 9223372036854775807, 1267650600228229401496703205376::HUGEINT, 255, 65535,
        4294967295, 18446744073709551615::UBIGINT, true),
       (3, 0, 0, 0, 0, 0, 1, 1, 1, 9223372036854775808::UBIGINT, NULL),
       (4, -1, -1, -1, -1, -1, 128, 32768, 2147483648, 1, true)""",
)

REALS = _values(
    "r FLOAT, d DOUBLE, m DECIMAL(4,1), n DECIMAL(18,3), o DECIMAL(38,10), p DECIMAL(5,5)",
    """(0, 'nan'::FLOAT, 'nan'::DOUBLE, -999.9, -999999999999999.999, -9999999999999999999999999999.9999999999, -0.99999),
       (1, NULL, NULL, NULL, NULL, NULL, NULL),
       (2, 'inf'::FLOAT, 'inf'::DOUBLE, 999.9, 999999999999999.999, 9999999999999999999999999999.9999999999, 0.99999),
       (3, '-inf'::FLOAT, '-inf'::DOUBLE, 0, 0, 0, 0),
       (4, '-0.0'::FLOAT, '-0.0'::DOUBLE, -0.1, 0.001, 0.0000000001, 0.00001),
       (5, 1.1::FLOAT, 1.7976931348623157e308, 1, 1, 1, 0.5),
       (6, 1.17549435e-38::FLOAT, 5e-324, 1.5, 12.345, 1.23, 0.12345),
       (7, 3.4028235e38::FLOAT, 0.1, -1.5, -12.345, -1.23, -0.12345)""",
)

TIMES = _values(
    "d DATE, t TIME, ts TIMESTAMP, tz TIMESTAMPTZ, s TIMESTAMP_S, ms TIMESTAMP_MS, ns TIMESTAMP_NS, iv INTERVAL, u UUID",
    """(0, '1969-12-31'::DATE, '00:00:00'::TIME, '1969-12-31 23:59:59.999999'::TIMESTAMP, '1969-12-31 23:59:59.999999+00'::TIMESTAMPTZ,
        '1969-12-31 23:59:59'::TIMESTAMP_S, '1969-12-31 23:59:59.999'::TIMESTAMP_MS, '1969-12-31 23:59:59.999999999'::TIMESTAMP_NS,
        INTERVAL '1 month 3 days', '00000000-0000-0000-0000-000000000000'::UUID),
       (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
       (2, '0001-01-01', '23:59:59.999999', '0001-01-01 00:00:00', '2024-03-31 03:30:00+02', '2000-02-29 12:00:00', '0001-01-01 00:00:00',
        '2262-04-11 23:47:16.854775806'::TIMESTAMP_NS, INTERVAL '1 year 2 days 03:04:05.006', 'ffffffff-ffff-ffff-ffff-ffffffffffff'),
       (3, '9999-12-31', '12:34:56.5', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00', '9999-12-31 23:59:59',
        '9999-12-31 23:59:59.999', '1677-09-22 00:00:00', INTERVAL '0 seconds', '12345678-9abc-def0-1234-56789abcdef0'),
       (4, '2024-02-29', '00:00:00.000001', '2024-02-29 12:00:00.000001', '2024-02-29 12:00:00-05:30', '1970-01-01 00:00:00',
        '1970-01-01 00:00:00', '1970-01-01 00:00:00', INTERVAL '1 millisecond', '80000000-0000-0000-0000-000000000000')""",
)

NESTED = _values(
    'l INTEGER[], ll VARCHAR[][], st STRUCT(x INTEGER, "y z" VARCHAR), sl STRUCT(a INTEGER, b STRUCT(c DATE, d DOUBLE[]))[],'
    " mp MAP(VARCHAR, INTEGER), ms MAP(INTEGER, STRUCT(v VARCHAR, w BIGINT[]))",
    """(0, [1, 2, NULL], [['a', ''], [], NULL, ['it''s', 'ü, "x"', NULL]], {'x': 1, 'y z': 'text'},
        [{'a': 1, 'b': {'c': DATE '2024-01-01', 'd': [1.5, 'nan'::DOUBLE]}}], MAP {'a': 1, 'b''"': NULL}, MAP {1: {'v': 'x', 'w': [1]}}),
       (1, NULL, NULL, NULL, NULL, NULL, NULL),
       (2, [], [], {'x': NULL, 'y z': NULL}, [], MAP {}, MAP {}),
       (3, [NULL], [NULL], {'x': 3, 'y z': NULL}, [NULL], MAP {'': 0}, MAP {-5: NULL}),
       (4, [2147483647, -2147483648], [['null', 'NULL', '[]', '{}', ' ', 'a,b', '\\', 'back\\slash']], {'x': -3, 'y z': 'a=b, {c}'},
        [{'a': NULL, 'b': NULL}, {'a': 2, 'b': {'c': NULL, 'd': NULL}}], MAP {'k=v, ''w''': 7}, MAP {7: {'v': NULL, 'w': NULL}})""",
)

VALUES: Mapping[str, Sequence[Step]] = {
    "texts": TEXTS,
    "integers": INTEGERS,
    "reals": REALS,
    "times": TIMES,
    "nested": NESTED,
}

SCENARIOS: Mapping[str, Sequence[Step]] = {
    "inserts": INSERTS,
    "deletes": DELETES,
    "updates": UPDATES,
    "merges": MERGES,
    "replacements": REPLACEMENTS,
    "transactions": TRANSACTIONS,
    "names": NAMES,
    "evolution": EVOLUTION,
    "fields": FIELDS,
    "evolving": EVOLVING,
    "maintenance": MAINTENANCE,
    **VALUES,
}
