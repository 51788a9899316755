/** The parts of the dashboard that need no browser. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { chooseChart, histogram, natureOf, placeOf, points } from "../src/choice.ts";
import { drawing, lasting, perSecond, rateOf, stateOf, type Described } from "../src/flow.ts";
import { ago, bytes, counted, quotedTable, referTo, splitName, splitPlace } from "../src/format.ts";
import { compareColumns, kindOf } from "../src/history.ts";
import { tableOf } from "../src/lineage.ts";
import { perMinute } from "../src/minutes.ts";
import { parametersFor, parametersOf, valueOf } from "../src/params.ts";
import { isOne, readsOf, stepsOf } from "../src/plan.ts";
import { partitionOf, partitionsOf } from "../src/partitions.ts";
import { parseRoute, routeTo, snapshotOf } from "../src/route.ts";
import { parseRow, RowSet } from "../src/rows.ts";
import { HIGHEST, moved, pageHeight, ROW, scrolledTo } from "../src/scrolling.ts";
import { nameOf, newSheet, opened, remembered } from "../src/sheets.ts";
import { lengthOf, listOf, panned, spanOf, within, zoomed } from "../src/span.ts";
import { treemap } from "../src/treemap.ts";

function answer(rows: readonly object[], facts = ""): Uint8Array {
  const texts = rows.map((row) => JSON.stringify(row)).join(",\n");
  return new TextEncoder().encode(`{${facts}"columns": [{"name": "ä", "type": "BIGINT"}], "rows": [${texts}], "row_count": ${rows.length}}\n`);
}

test("rows are the same however the bytes are cut", () => {
  const rows = [{ ä: 1 }, { ä: '],"row_count": 9, \n "rows": [' }, { ä: null }, { ä: "ü€😀" }];
  const whole = answer(rows, '"snapshot": 3, ');
  for (let size = 1; size <= whole.length; size += 1) {
    const found = new RowSet();
    for (let at = 0; at < whole.length; at += size) found.push(whole.slice(at, at + size));
    found.end();
    assert.deepEqual(Array.from({ length: found.length }, (_, index) => found.row(index)), rows);
    assert.deepEqual(found.facts, { snapshot: 3, row_count: 4 });
    assert.equal(found.columns[0]?.name, "ä");
  }
});

test("the place of a mistake in SQL is parted from what is said", () => {
  assert.deepEqual(splitPlace("Parser Error: near \"x\"\n\nLINE 2:   x y\n          ^"), { said: "Parser Error: near \"x\"", place: "LINE 2:   x y\n          ^" });
  assert.deepEqual(splitPlace("unterminated\nLINE 1: SELECT '\n               ^^"), { said: "unterminated", place: "LINE 1: SELECT '\n               ^^" });
  assert.deepEqual(splitPlace("two\nlines"), { said: "two\nlines", place: null });
});

test("an answer without rows has columns", () => {
  const found = new RowSet();
  found.push(answer([]));
  found.end();
  assert.equal(found.length, 0);
  assert.equal(found.columns.length, 1);
});

test("an answer that breaks off is never taken for a whole one", () => {
  const whole = answer([{ ä: 1 }, { ä: 2 }, { ä: 3 }]);
  for (let length = 0; length < whole.length - 2; length += 1) {
    const found = new RowSet();
    found.push(whole.slice(0, length));
    assert.throws(() => found.end(), Error, String(length));
  }
});

test("large numbers keep their digits, and texts stay as they are", () => {
  assert.deepEqual(parseRow('{"a":9223372036854775807,"b":"12345678901234567890","c":1.5,"d":[-9007199254740993]}'), {
    a: "9223372036854775807",
    b: "12345678901234567890",
    c: 1.5,
    d: ["-9007199254740993"],
  });
  assert.equal(parseRow('{"a":0.12345678901234567}')["a"], 0.12345678901234567);
});

test("a row that is called like a part of every object is itself", () => {
  const row = parseRow('{"__proto__":1,"constructor":2}');
  assert.equal(row["__proto__"], 1);
});

test("routes come back from their fragments", () => {
  for (const path of [["tables", 'main."a/b?#%"'], ["sql"], []]) {
    const query = { q: "SELECT '&=#?' -- ü", at: 3 };
    assert.deepEqual(parseRoute(routeTo(path, query)), { path, query: Object.assign(Object.create(null), { q: query.q, at: "3" }) });
  }
  assert.deepEqual(parseRoute("#/%E0%A4%A").path, []);
  assert.equal(snapshotOf(parseRoute("#/t?at=12").query), 12);
  for (const odd of ["-1", "1e3", "x", ""]) assert.equal(snapshotOf({ at: odd }), null);
});

test("numbers and times read as people write them", () => {
  assert.deepEqual([0, 999, 1000, 23345, 99949, 99950, 5e9].map(bytes), ["0 B", "999 B", "1.0 kB", "23.3 kB", "99.9 kB", "100 kB", "5.0 GB"]);
  assert.deepEqual([counted(1, "file"), counted(1234, "file")], ["1 file", "1,234 files"]);
  const now = new Date(1e12);
  const back = (seconds: number) => ago(new Date(1e12 - seconds * 1000), now);
  assert.deepEqual([-5, 1, 59, 60, 3600, 86400, 200000].map(back), ["just now", "just now", "59 s ago", "1 min ago", "1 h ago", "yesterday", "2 days ago"]);
});

test("names of tables are taken apart and quoted", () => {
  assert.deepEqual(splitName("main.orders"), ["main", "orders"]);
  assert.deepEqual(splitName('"a.b"."c""d"'), ["a.b", 'c"d']);
  for (const [schema, own] of [["main", "t"], ["a.b", "c"], ["a", 'b.c"d'], ["s", "<b>"]] as const) {
    const found = referTo(`${schema}.${own}`, ["main", "a", "a.b", "s"].filter((each) => each !== "a.b" || schema === "a.b"));
    assert.deepEqual(splitName(found.name), [schema, own]);
  }
  assert.equal(referTo("main.orders", ["main"]).name, "main.orders");
  assert.equal(quotedTable('main."x; DROP"'), '"main"."x; DROP"');
});

test("parameters are found outside of texts and comments", () => {
  assert.deepEqual(parametersOf("SELECT $day, '$no', \"$no\", $day -- $no\n, $$ $no $$, /* ? */ $2"), ["day", "2"]);
  assert.deepEqual(parametersOf("SELECT ?, '?', ?"), ["1", "2"]);
  assert.deepEqual(["7", "-1.5", "true", "null", "", "tea", "'7'", "007", "12345678901234567890"].map(valueOf), [7, -1.5, true, null, null, "tea", "7", "007", "12345678901234567890"]);
  assert.deepEqual(parametersFor(["1", "3"], { 1: "a", 3: "2" }), ["a", null, 2]);
  assert.deepEqual(parametersFor(["day"], { day: "2026-01-01" }), { day: "2026-01-01" });
  assert.equal(parametersFor([], {}), null);
});

test("snapshots have a kind", () => {
  assert.equal(kindOf("inlined_insert:1,inlined_delete:1"), "update");
  assert.equal(kindOf('created_table:"main"."orders",inserted_into_table:2'), "schema");
  assert.equal(kindOf("deleted_from_table:1"), "delete");
  assert.equal(kindOf(""), "other");
});

test("columns are compared with the newest", () => {
  const column = (name: string, type = "INT") => ({ name, type, nullable: true });
  const states = compareColumns([column("a"), column("b"), column("c")], [column("a"), column("b", "BIGINT"), column("d")]);
  assert.deepEqual(states.map((each) => [each.column.name, each.state]), [["a", "same"], ["b", "changed"], ["c", "dropped"], ["d", "later"]]);
});

test("a treemap fills its space in proportion and nothing overlaps", () => {
  let seed = 7;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  for (let round = 0; round < 200; round += 1) {
    const weights = Array.from({ length: 1 + Math.floor(random() * 60) }, () => 1 + Math.floor(random() ** 4 * 1e6)).sort((one, other) => other - one);
    const [width, height] = [100 + random() * 900, 100 + random() * 400];
    const boxes = treemap(weights, width, height);
    const total = weights.reduce((sum, each) => sum + each, 0);
    boxes.forEach((box, index) => {
      assert.ok(Math.abs(box.width * box.height - (weights[index]! / total) * width * height) < 1e-3 * width * height);
      assert.ok(box.x >= -1e-6 && box.y >= -1e-6 && box.x + box.width <= width + 1e-6 && box.y + box.height <= height + 1e-6);
    });
    for (const [index, one] of boxes.entries())
      for (const other of boxes.slice(index + 1)) {
        const across = Math.min(one.x + one.width, other.x + other.width) - Math.max(one.x, other.x);
        const down = Math.min(one.y + one.height, other.y + other.height) - Math.max(one.y, other.y);
        assert.ok(across < 1e-6 || down < 1e-6);
      }
  }
  assert.deepEqual(treemap([], 10, 10), []);
});

test("every row of a million can be reached, by steps and by jumps", () => {
  const [rows, view] = [1_000_000, 600];
  assert.equal(pageHeight(rows), HIGHEST);
  const most = rows * ROW - view;
  assert.equal(scrolledTo({ top: 0, scrolled: 0 }, HIGHEST - view, rows, view).top, most);
  assert.equal(scrolledTo({ top: most, scrolled: HIGHEST - view }, 0, rows, view).top, 0);
  assert.equal(scrolledTo({ top: 5000, scrolled: 1000 }, 1030, rows, view).top, 5030);
  const half = scrolledTo({ top: 0, scrolled: 0 }, (HIGHEST - view) / 2, rows, view).top;
  assert.ok(Math.abs(half - most / 2) < 1);
  assert.equal(scrolledTo({ top: 0, scrolled: 0 }, 90, 100, view).top, 90);
});

test("a chart is chosen by types", () => {
  const columns = (...types: [string, string][]) => types.map(([name, type]) => ({ name, type }));
  assert.deepEqual(chooseChart(columns(["day", "DATE"], ["id", "BIGINT"], ["sold", "HUGEINT"]), 9), { kind: "line", x: "day", y: ["sold"] });
  assert.deepEqual(chooseChart(columns(["name", "VARCHAR"], ["n", "BIGINT"]), 9), { kind: "bar", x: "name", y: ["n"] });
  assert.deepEqual(chooseChart(columns(["a", "DOUBLE"], ["b", "DECIMAL(9,2)"]), 900), { kind: "scatter", x: "a", y: ["b"] });
  assert.deepEqual(chooseChart(columns(["a", "DOUBLE"]), 900), { kind: "histogram", x: null, y: ["a"] });
  assert.equal(chooseChart(columns(["a", "VARCHAR"]), 9), null);
  assert.deepEqual(["INTEGER[]", "TIMESTAMP WITH TIME ZONE", "uint8", "INTERVAL"].map(natureOf), ["text", "time", "number", "text"]);
});

test("points are in order, and times are in UTC", () => {
  assert.equal(placeOf("1970-01-02", "time"), 86400);
  assert.equal(placeOf("1970-01-01T00:00:01", "time"), 1);
  assert.equal(placeOf("1970-01-01T01:00:01+01:00", "time"), 1);
  assert.ok(Number.isNaN(placeOf(null, "number")));
  const rows = [{ t: "1970-01-02", n: 2 }, { t: null, n: 9 }, { t: "1970-01-01", n: null }];
  const nature = (name: string) => (name === "t" ? "time" : "number") as "time" | "number";
  const { x, y, order } = points(rows, { kind: "line", x: "t", y: ["n"] }, nature);
  assert.deepEqual({ x, y }, { x: [0, 86400], y: [[null, 2]] });
  assert.deepEqual(order.map((index) => placeOf(rows[index]!.t, "time")), x);
  const bins = histogram([0, 1, 2, 3, Number.NaN]);
  assert.equal(bins.counts.reduce((sum, each) => sum + each, 0), 4);
  assert.deepEqual(histogram([5, 5]), { edges: [5], counts: [2] });
});

test("a link opens in an empty sheet or a new one, and twice in the same", () => {
  const empty = newSheet();
  const first = opened([empty], empty.id, "SELECT 1", 3);
  assert.equal(first.sheets.length, 1);
  const second = opened(first.sheets, first.chosen, "SELECT 2", null);
  assert.equal(second.sheets.length, 2);
  assert.equal(opened(second.sheets, second.chosen, "SELECT 1", 3).chosen, first.chosen);
  assert.equal(nameOf({ ...empty, sql: "-- x\n\n SELECT\t1" }, 1), "SELECT 1");
  const past = remembered([{ sql: "a", at: null, time: 1, rows: 1 }], { sql: "a", at: null, time: 2, rows: 1 });
  assert.deepEqual(past.map((each) => each.time), [2]);
});

test("commits are counted by minute", () => {
  assert.deepEqual(perMinute([0, 59_999, 60_000, 119_999, 120_000], 120_000, 3), [1, 2, 2]);
});

const PIPELINE: Described = {
  name: "p", engine: "local", source: "nats", state: "running", running: true, here: true, reads: "orders", query: null, every_seconds: 1,
  dead_letters: null, letters: 0, letters_pending: 0, checkpoint: 1, checkpoint_time: null, finished: true, position: null, lag: 0, lag_seconds: 0,
  sinks: [{ name: "a", type: "lake", mode: "append", where: null, writes: "x" }, { name: "b", type: "delta", mode: "append", where: null, writes: null }],
  checkpoints: [
    { checkpoint: 0, checkpoint_time: "2026-01-01T00:00:00+00:00", sequence: 10 },
    { checkpoint: 1, checkpoint_time: "2026-01-01T00:00:02+00:00", sequence: 50 },
  ],
  run: { batches: 1, rows: 90, rejected: 0, restarts: 0, error: null, recent: [{ checkpoint: 1, rows: 90, rejected: 0, milliseconds: 5, ended: 1000 }] },
};

test("the rate is that of the last minute, elsewhere that between checkpoints, and none of what does not run", () => {
  assert.equal(rateOf(PIPELINE, 1030_000), 1.5);
  assert.equal(rateOf(PIPELINE, 1061_000), 0);
  assert.equal(rateOf({ ...PIPELINE, here: false, run: null }, 0), 20);
  assert.equal(rateOf({ ...PIPELINE, here: false, checkpoints: [] }, 0), null);
  assert.equal(rateOf({ ...PIPELINE, running: false }, 0), null);
  assert.deepEqual([null, 0, 0.5, 12.34, 1234.5].map(perSecond), ["–", "0", "0.50", "12.3", "1,235"]);
  assert.deepEqual([0.25, 61.04, 600, 9000].map(lasting), ["250 ms", "61 s", "10 min", "3 h"]);
  assert.equal(stateOf(PIPELINE), "running");
  assert.equal(stateOf({ ...PIPELINE, running: false }), "waiting");
  assert.equal(stateOf({ ...PIPELINE, running: false, state: "stopped" }), "stopped");
});

test("a pipeline is drawn with every sink, and what is no row beside it", () => {
  const { nodes, lines } = drawing({ ...PIPELINE, dead_letters: "bad" });
  assert.deepEqual(nodes.map((node) => node.id), ["source", "query", "sink a", "sink b", "letters"]);
  assert.deepEqual(lines.map((line) => [line.from.id, line.to.id, line.dashed]), [["source", "query", false], ["query", "sink a", false], ["query", "sink b", false], ["source", "letters", true]]);
  assert.deepEqual(nodes[2]!.leads, { table: "main.x" });
  const places = nodes.map((node) => `${node.x} ${node.y}`);
  assert.equal(new Set(places).size, places.length);
  assert.equal(drawing(PIPELINE).lines.length, 3);
});

test("a statement tells of which table its rows are only where there is no doubt", () => {
  assert.equal(tableOf("FROM orders"), "main.orders");
  assert.equal(tableOf("select rowid, * from shop.orders where id = 'from x' order by id limit 5;"), "shop.orders");
  assert.equal(tableOf('SELECT rowid, id FROM "a.b"."c""d"'), '"a.b"."c""d"');
  for (const sql of [
    "SELECT rowid FROM a JOIN b USING (id)", "SELECT rowid FROM a, b", "SELECT max(rowid) AS rowid FROM a", "SELECT id AS rowid FROM a", "SELECT rowid FROM (FROM a)",
    "FROM a UNION ALL FROM b", "WITH a AS (FROM b) FROM a", "SELECT rowid FROM a AS x", "SELECT rowid FROM a AT (VERSION => 1)", "INSERT INTO a FROM b", "SELECT rowid FROM a WHERE id IN (SELECT 1)",
    "SELECT 1 -- FROM a\nFROM b", "SELECT 'x' FROM a", "SELECT id rowid FROM a", "",
  ])
    assert.equal(tableOf(sql), null, sql);
});

test("a span is zoomed about a point, moved, and kept inside the whole", () => {
  const whole = { from: 0, to: 100_000 };
  assert.deepEqual(zoomed({ from: 0, to: 100 }, 0.5, 25), { from: 12.5, to: 62.5 });
  assert.deepEqual(panned({ from: 0, to: 100 }, -0.5), { from: -50, to: 50 });
  assert.deepEqual(within({ from: -5_000, to: 5_000 }, whole), { from: 0, to: 10_000 });
  assert.deepEqual(within({ from: 95_000, to: 105_000 }, whole), { from: 90_000, to: 100_000 });
  assert.deepEqual(within({ from: -8e15, to: 8e15 }, whole), whole);
  assert.deepEqual(within({ from: 50_000, to: 50_001 }, whole), { from: 49_501, to: 50_501 });
  assert.equal(lengthOf({ from: 0, to: 3_600_000 }), "1 hour");
  assert.equal(lengthOf({ from: 0, to: 365 * 86_400_000 - 60_000 }), "1 year");
  assert.equal(spanOf({ from: "5", to: "4" }), null);
  assert.deepEqual(spanOf({ from: "-5", to: "4" }), { from: -5, to: 4 });
  assert.deepEqual(listOf('["a", 1, "b"]'), ["a", "b"]);
  assert.deepEqual(listOf("{"), []);
});

test("a plan is read with its files, and only one statement has one", () => {
  const lines = "Total Files Read: 4 of lakes\nlake.a.b at snapshot 29: 22 files, 18 pruned, 4 read, 1 deletes and 3 rows in the catalog\n";
  assert.deepEqual(readsOf(lines), [{ table: "lake.a.b", files: 22, pruned: 18, read: 4, deletes: 1, inlined: 3 }]);
  const [step] = stepsOf('[{"name": "A", "children": [{"name": "B"}], "extra_info": {"Estimated Cardinality": "7", "P": ["x", "y"]}}]');
  assert.deepEqual([step?.name, step?.rows, step?.facts, step?.children[0]?.rows], ["A", 7, [["P", "x, y"]], null]);
  assert.deepEqual(stepsOf("no plan"), []);
  assert.ok(isOne("SELECT ';' -- ; \n ; ") && isOne('SELECT 1 AS ";" /* ; */') && isOne("SELECT $a$ ; $a$"));
  assert.ok(!isOne("SELECT 1; DELETE FROM t") && !isOne("SELECT 'it''s'; DROP TABLE t"));
});

test("partitions come by their bytes, and files without one are told apart", () => {
  const file = (partition: (string | null)[], file_size_bytes: number) => ({ partition, file_size_bytes });
  const files = [file(["a", null], 5), file(["b", "1"], 3), file(["a", null], 1), file([], 9), file(["b", "1"], 4)];
  assert.deepEqual(partitionsOf(files), ["no partition", "b, 1", "a, NULL"]);
  assert.equal(partitionOf(files[0]!), "a, NULL");
  assert.deepEqual(partitionsOf([]), []);
});

test("keys go from row to row, and not past the ends", () => {
  assert.equal(moved(null, "ArrowDown", 9, 4), 0);
  assert.equal(moved(0, "ArrowUp", 9, 4), 0);
  assert.equal(moved(3, "PageDown", 9, 4), 7);
  assert.equal(moved(7, "PageDown", 9, 4), 8);
  assert.deepEqual([moved(5, "Home", 9, 4), moved(null, "End", 9, 4)], [0, 8]);
  assert.deepEqual([moved(5, "Tab", 9, 4), moved(null, "End", 0, 4)], [null, null]);
});
