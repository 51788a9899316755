/** Where a person is: the fragment of the address, as in #/tables/main.orders?at=3. */

export interface Route {
  /** The parts of the path, decoded. */
  path: string[];
  query: Record<string, string>;
}

/** Return the route of a fragment; what cannot be read leads home. */
export function parseRoute(fragment: string): Route {
  const text = fragment.replace(/^#?\/?/, "");
  const mark = text.indexOf("?");
  const path = (mark < 0 ? text : text.slice(0, mark)).split("/").filter((part) => part !== "");
  const query: Record<string, string> = Object.create(null);
  if (mark >= 0) for (const [name, value] of new URLSearchParams(text.slice(mark + 1))) query[name] = value;
  try {
    return { path: path.map(decodeURIComponent), query };
  } catch {
    return { path: [], query: Object.create(null) };
  }
}

/** Return the fragment of a route; values that are empty are left out. */
export function routeTo(path: readonly string[], query: Record<string, string | number | null | undefined> = {}): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== null && value !== undefined && value !== "") given.set(name, String(value));
  const tail = given.size ? `?${given}` : "";
  return `#/${path.map(encodeURIComponent).join("/")}${tail}`;
}

/** Return a snapshot of a query, or null for the newest. */
export function snapshotOf(query: Record<string, string>): number | null {
  const text = query["at"];
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : null;
}
