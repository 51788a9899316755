/** The plan of a statement, and the files that it reads. */

export interface Step {
  name: string;
  children: Step[];
  /** What the step does, as pairs of a name and a text. */
  facts: [string, string][];
  rows: number | null;
}

export interface Read {
  table: string;
  files: number;
  pruned: number;
  read: number;
  deletes: number;
  inlined: number;
}

const LINE = /^(.+) at snapshot \d+: (\d+) files, (\d+) pruned, (\d+) read, (\d+) deletes and (\d+) rows in the catalog$/;
const DEEPEST = 200;
/** Texts, names in quotes and comments, in which nothing ends a statement. */
const QUIET = /'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|\$(\w*)\$[\s\S]*?\$\1\$/g;

/** Return whether a text is one statement: what follows a first one would be run, and not only explained. */
export function isOne(sql: string): boolean {
  return !sql.replace(QUIET, " ").replace(/[;\s]+$/, "").includes(";");
}

/** Return the tables that a plan reads, from the lines after it. */
export function readsOf(text: string): Read[] {
  return text.split("\n").flatMap((line) => {
    const found = LINE.exec(line.trim());
    if (found === null) return [];
    const [files, pruned, read, deletes, inlined] = found.slice(2).map(Number) as [number, number, number, number, number];
    return [{ table: found[1]!, files, pruned, read, deletes, inlined }];
  });
}

/** Return the steps of a plan in JSON; what is no plan has none. */
export function stepsOf(text: string): Step[] {
  const step = (value: unknown, depth: number): Step[] => {
    if (depth > DEEPEST || value === null || typeof value !== "object") return [];
    const given = value as { name?: unknown; children?: unknown; extra_info?: unknown };
    const info = given.extra_info !== null && typeof given.extra_info === "object" ? (given.extra_info as Record<string, unknown>) : {};
    const rows = Number(info["Estimated Cardinality"]);
    const facts = Object.entries(info)
      .filter(([name]) => name !== "Estimated Cardinality")
      .map(([name, each]): [string, string] => [name, Array.isArray(each) ? each.join(", ") : String(each)]);
    const children = Array.isArray(given.children) ? given.children.flatMap((each) => step(each, depth + 1)) : [];
    return [{ name: String(given.name ?? "?"), children, facts, rows: Number.isFinite(rows) && "Estimated Cardinality" in info ? rows : null }];
  };
  try {
    const found = JSON.parse(text) as unknown;
    return (Array.isArray(found) ? found : [found]).flatMap((each) => step(each, 0));
  } catch {
    return [];
  }
}
