/** The parameters of a statement. */

/** Texts, names in quotes and comments, in which nothing is a parameter. */
const QUIET = String.raw`'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|\$\w*\$[\s\S]*?\$\w*\$`;
const FOUND = new RegExp(`${QUIET}|\\$([A-Za-z_]\\w*|\\d+)|(\\?)`, "g");

/** Return the names of the parameters of a statement, in their order: $day is day, the first ? is 1. */
export function parametersOf(sql: string): string[] {
  const names = new Set<string>();
  let marks = 0;
  for (const match of sql.matchAll(FOUND)) {
    if (match[1] !== undefined) names.add(match[1]);
    else if (match[2] !== undefined) names.add(String((marks += 1)));
  }
  return [...names];
}

/** Return the value that a person means: a number, a truth value, null, or a text. */
export function valueOf(text: string): unknown {
  const plain = text.trim();
  if (/^-?(0|[1-9]\d{0,14})(\.\d{1,15})?$/.test(plain)) return Number(plain);
  if (plain === "true" || plain === "false") return plain === "true";
  if (plain.toLowerCase() === "null" || plain === "") return null;
  return /^'.*'$/s.test(plain) ? plain.slice(1, -1).replaceAll("''", "'") : text;
}

/** Return the parameters as the service takes them: a list for numbers, an object for names. */
export function parametersFor(names: readonly string[], given: Record<string, string>): unknown {
  if (!names.length) return null;
  const numbers = names.every((name) => /^\d+$/.test(name));
  if (!numbers) return Object.fromEntries(names.map((name) => [name, valueOf(given[name] ?? "")]));
  const most = Math.max(...names.map(Number));
  return Array.from({ length: most }, (_, index) => valueOf(given[String(index + 1)] ?? ""));
}
