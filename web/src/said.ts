/** What a change of access will do, in sentences: a person reads them before it happens. */

/** Return names as a list: a, b and c. */
export function listed(names: readonly string[], last = "and"): string {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} ${last} ${names.at(-1)}`;
}

export interface WantedGrant {
  privileges: readonly string[];
  to: string;
  scope: "lake" | "schema" | "table";
  /** The schema, table or view. */
  object: string;
  columns: readonly string[];
}

/** Return what a grant allows. */
export function grantSaid(grant: WantedGrant): string {
  const place =
    grant.scope === "lake" ? "in the whole lake" : grant.scope === "schema" ? `in the schema ${grant.object}, also in tables that come later` : `on ${grant.object}`;
  const columns = grant.columns.length ? ` its ${grant.columns.length === 1 ? "column" : "columns"} ${listed(grant.columns)}` : "";
  return `${grant.to} may ${listed(grant.privileges)}${columns} ${place}. This holds from the next statement on.`;
}

/** Return the body of a request for a grant: the fields of its scope, and no others. */
export function grantBody(grant: WantedGrant): Record<string, unknown> {
  const place = grant.scope === "lake" ? {} : grant.scope === "schema" ? { schema: grant.object } : { table: grant.object };
  return { privileges: grant.privileges, to: grant.to, ...place, ...(grant.scope === "table" && grant.columns.length ? { columns: grant.columns } : {}) };
}

/** Return the privileges that can be granted there. */
export function privilegesOf(scope: WantedGrant["scope"], columns: boolean): string[] {
  if (columns) return ["SELECT"];
  return ["SELECT", "INSERT", "UPDATE", "DELETE", ...(scope === "table" ? [] : ["CREATE"])];
}

/** Return what a row filter or a mask will do. */
export function ruleSaid(rule: { kind: "filter" | "mask"; table: string; column: string; to: string; using: string }): string {
  const whom = rule.to === "" ? "everybody" : `members of ${rule.to}`;
  if (rule.kind === "mask") return `In place of ${rule.column} of ${rule.table}, ${whom} will see the value of ${rule.using}. Conditions see that value, too. Administrators see the column.`;
  return `Of ${rule.table}, ${whom} will see the rows where ${rule.using}. Users whom no filter of this table is for will see none of its rows. Administrators see all.`;
}

/** Return the table of what a record of the audit log has read: main.orders(id, region) is main.orders. */
export function tableRead(text: string): string {
  const end = text.lastIndexOf("(");
  return end < 0 || !text.endsWith(")") ? text : text.slice(0, end);
}

/** Return a day and a time of a field, which are in the reader's zone, as the service takes them; "" for none. */
export function instant(local: string): string | null {
  const then = new Date(local);
  return local === "" || Number.isNaN(then.getTime()) ? null : then.toISOString();
}
