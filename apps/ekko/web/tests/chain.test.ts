/** Amounts and filters of Ekko's page. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { asked, coins, filterOf, short } from "../chain.ts";

test("amounts keep their digits, and filters ask for what they say", () => {
  assert.equal(coins("1500000000000000000"), "1.5");
  assert.equal(coins("12345000000000000000000"), "12,345");
  assert.equal(coins("1"), "< 0.000001");
  assert.equal(coins("0"), "0");
  assert.equal(coins("115792089237316195423570985008687907853269984665640564039457", 18, 18), "115,792,089,237,316,195,423,570,985,008,687,907,853,269.984665640564039457");
  assert.equal(coins("unknown"), "unknown");
  assert.equal(short("0x106da76841651adaf93d530a16039aa990953ff5"), "0x106da7…953ff5");
  const filter = filterOf({ kind: "failed", network: "Avalanche/Fuji", size: "7", page: "2", to: "2026-11-17" }, 3);
  assert.deepEqual([filter.limit, filter.page], [20, 2]);
  const query = asked(filter);
  assert.deepEqual([query["networks"], query["subnets"], query["status"], query["transaction_types"], query["version"]], ["Avalanche", "Fuji", "failed", null, 3]);
  assert.equal(asked(filterOf({ kind: "nonsense" }, null))["status"], null);
});
