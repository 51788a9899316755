/** What snapshots changed, in a word and a colour. */

import type { Column, Snapshot } from "./types.ts";

export type Kind = "schema" | "insert" | "update" | "delete" | "maintenance" | "other";

/** Return the kind of a snapshot, by the changes that the catalog lists. */
export function kindOf(changes: string): Kind {
  const found = (pattern: RegExp) => pattern.test(changes);
  const inserted = found(/inserted_into_table|inlined_insert/);
  const deleted = found(/deleted_from_table|inlined_delete/);
  if (found(/created_|dropped_|altered_/)) return "schema";
  if (found(/compacted_table|merge_adjacent|rewrite_delete|inline_flush|flushed_inlined/)) return "maintenance";
  if (inserted && deleted) return "update";
  if (inserted) return "insert";
  return deleted ? "delete" : "other";
}

export const KINDS: Record<Kind, string> = {
  schema: "schema",
  insert: "rows added",
  update: "rows changed",
  delete: "rows removed",
  maintenance: "maintenance",
  other: "other",
};

/** Return a line about a snapshot: its message, or what it did. */
export function told(snapshot: Snapshot): string {
  return snapshot.commit_message || snapshot.description || snapshot.operation || snapshot.changes || "no change";
}

export interface Compared {
  column: Column;
  /** Beside the newest: the same, with another type, added later, or dropped since. */
  state: "same" | "changed" | "later" | "dropped";
  now?: Column;
}

/** Compare the columns of a snapshot with the newest ones. */
export function compareColumns(then: readonly Column[], now: readonly Column[]): Compared[] {
  const newest = new Map(now.map((column) => [column.name, column]));
  const past = new Set(then.map((column) => column.name));
  const found: Compared[] = then.map((column) => {
    const other = newest.get(column.name);
    if (other === undefined) return { column, state: "dropped" };
    return { column, state: other.type === column.type && other.nullable === column.nullable ? "same" : "changed", now: other };
  });
  for (const column of now) if (!past.has(column.name)) found.push({ column, state: "later", now: column });
  return found;
}
