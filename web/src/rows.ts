/**
 * Rows of an answer as they arrive. The service writes one row a line, so that rows are kept as the bytes that came
 * and read when somebody looks at them: a million of them take no more memory than their text.
 */

import type { ResultColumn } from "./types.ts";

export type Row = Record<string, unknown>;

interface Block {
  first: number;
  bytes: Uint8Array;
  starts: Uint32Array;
}

const COMMA = 44;
const NEWLINE = 10;
const ROWS = '"rows": [';
const TAIL = '], "row_count": ';
/** Texts and numbers. Texts are matched too, so that no number in them is. */
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
/** Whole numbers that a float may not hold. */
const LARGE = /^-?\d{16,}$/;

/** Return a row of JSON. Numbers too large for a float come as their digits. */
export function parseRow(text: string): Row {
  return JSON.parse(
    text.replace(TOKENS, (found) => (LARGE.test(found) ? `"${found}"` : found)),
  ) as Row;
}

export class RowSet {
  columns: ResultColumn[] = [];
  /** What the answer says beside its rows: snapshot, changed_rows, row_count. */
  facts: Record<string, unknown> = {};
  length = 0;
  size = 0;
  private blocks: Block[] = [];
  private rest: Uint8Array = new Uint8Array(0);
  private headed = false;
  private readonly decoder = new TextDecoder();
  private readonly read = new Map<number, Row>();

  /** Take bytes of the answer. */
  push(bytes: Uint8Array): void {
    this.size += bytes.length;
    let joined = bytes;
    if (this.rest.length) {
      joined = new Uint8Array(this.rest.length + bytes.length);
      joined.set(this.rest);
      joined.set(bytes, this.rest.length);
    }
    if (!this.headed) {
      const text = this.decoder.decode(joined);
      const mark = text.indexOf(ROWS);
      if (mark < 0) {
        this.rest = joined;
        return;
      }
      const head = JSON.parse(`${text.slice(0, mark)}"rows": []}`) as Record<string, unknown>;
      this.columns = head["columns"] as ResultColumn[];
      delete head["columns"];
      delete head["rows"];
      this.facts = head;
      this.headed = true;
      joined = joined.subarray(new TextEncoder().encode(text.slice(0, mark + ROWS.length)).length);
    }
    this.keep(joined);
  }

  /** Keep the lines that are complete; a comma and a newline end each but the last. */
  private keep(joined: Uint8Array): void {
    const starts: number[] = [];
    let begin = 0;
    for (let end = joined.indexOf(NEWLINE); end >= 0; end = joined.indexOf(NEWLINE, end + 1)) {
      if (joined[end - 1] !== COMMA) continue;
      starts.push(begin);
      begin = end + 1;
    }
    if (starts.length) {
      starts.push(begin);
      this.add(joined.subarray(0, begin), starts);
    }
    this.rest = joined.subarray(begin);
  }

  private add(bytes: Uint8Array, starts: number[]): void {
    this.blocks.push({ first: this.length, bytes, starts: Uint32Array.from(starts) });
    this.length += starts.length - 1;
  }

  /** Say that the answer has ended. Throws when it has not: then rows are missing. */
  end(): void {
    const text = this.decoder.decode(this.rest);
    const mark = text.lastIndexOf(TAIL);
    if (!this.headed || mark < 0) throw new Error("The answer broke off: rows are missing.");
    const tail = JSON.parse(`{${text.slice(mark + 3)}`) as Record<string, unknown>;
    const last = new TextEncoder().encode(text.slice(0, mark));
    if (last.length) this.add(last, [0, last.length]);
    this.rest = new Uint8Array(0);
    this.facts = { ...this.facts, ...tail };
    if (tail["row_count"] !== this.length) throw new Error("The answer broke off: rows are missing.");
  }

  /** Return a row by its number. */
  row(index: number): Row {
    const known = this.read.get(index);
    if (known !== undefined) return known;
    let low = 0;
    let high = this.blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.blocks[middle]!.first <= index) low = middle;
      else high = middle - 1;
    }
    const block = this.blocks[low];
    if (block === undefined || index < 0 || index >= this.length) throw new RangeError(`there is no row ${index}`);
    const at = index - block.first;
    const text = this.decoder.decode(block.bytes.subarray(block.starts[at], block.starts[at + 1]));
    const row = parseRow(text.replace(/,?\s*$/, ""));
    if (this.read.size > 2000) this.read.clear();
    this.read.set(index, row);
    return row;
  }
}
