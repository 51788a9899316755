/** What is said before access changes, and what is sent. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { grantBody, grantSaid, instant, listed, privilegesOf, ruleSaid, tableRead, type WantedGrant } from "../src/said.ts";

const grant = (more: Partial<WantedGrant>): WantedGrant => ({ privileges: ["SELECT"], to: "ann", scope: "table", object: "main.orders", columns: [], ...more });

test("names are a list that one can read", () => {
  assert.deepEqual([listed([]), listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])], ["", "a", "a and b", "a, b and c"]);
});

test("a grant says whom it allows what, and where", () => {
  assert.equal(grantSaid(grant({})), "ann may SELECT on main.orders. This holds from the next statement on.");
  assert.match(grantSaid(grant({ columns: ["id", "region"] })), /^ann may SELECT its columns id and region on main\.orders\./);
  assert.match(grantSaid(grant({ scope: "schema", object: "main", privileges: ["SELECT", "INSERT"] })), /SELECT and INSERT in the schema main, also in tables that come later/);
  assert.match(grantSaid(grant({ scope: "lake", object: "" })), /in the whole lake/);
});

test("a request for a grant has the fields of its scope and no others", () => {
  assert.deepEqual(grantBody(grant({ scope: "lake", object: "old choice", columns: ["x"] })), { privileges: ["SELECT"], to: "ann" });
  assert.deepEqual(grantBody(grant({ scope: "schema", object: "main" })), { privileges: ["SELECT"], to: "ann", schema: "main" });
  assert.deepEqual(grantBody(grant({ columns: ["id"] })), { privileges: ["SELECT"], to: "ann", table: "main.orders", columns: ["id"] });
});

test("privileges are those that can be granted there", () => {
  assert.deepEqual(privilegesOf("table", true), ["SELECT"]);
  assert.ok(!privilegesOf("table", false).includes("CREATE") && privilegesOf("schema", false).includes("CREATE"));
});

test("a row filter says that users without one see nothing", () => {
  const said = ruleSaid({ kind: "filter", table: "main.orders", column: "", to: "", using: "region = 'EU'" });
  assert.match(said, /everybody will see the rows where region = 'EU'/);
  assert.match(said, /no filter of this table is for will see none/);
  assert.match(ruleSaid({ kind: "mask", table: "main.orders", column: "email", to: "analyst", using: "'…'" }), /In place of email of main\.orders, members of analyst/);
});

test("the table of a record is what stands before its columns, whatever its name has", () => {
  assert.deepEqual(["main.orders(id, b)", "main.a(b)(c)", "main.x", "main.y()"].map(tableRead), ["main.orders", "main.a(b)", "main.x", "main.y"]);
});

test("a time of a field is an instant, and nonsense is none", () => {
  assert.equal(instant(""), null);
  assert.equal(instant("nonsense"), null);
  assert.equal(instant("2026-01-31T12:00"), new Date("2026-01-31T12:00").toISOString());
});
