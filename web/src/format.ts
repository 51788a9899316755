/** Numbers, sizes and times as people read them. */

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** Return a size: 23345 is 23.3 kB. */
export function bytes(size: number): string {
  let value = size;
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || Math.abs(value) >= 99.95 ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** Part a message of SQL from the lines that show the place: `LINE 1: …`, and carets below. */
export function splitPlace(message: string): { said: string; place: string | null } {
  const found = /\s*\n(LINE \d+: [^\n]*\n *\^+)\s*$/.exec(message);
  return found ? { said: message.slice(0, found.index), place: found[1]! } : { said: message, place: null };
}

/** Return a count with its thousands apart: 12,345. */
export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** Return a count with its noun: 1 file, 2 files. */
export function counted(value: number, noun: string, plural = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : plural}`;
}

/** Return the time of a snapshot; the service writes it as 2026-11-17 18:28:25.815018+00:00. */
export function parseTime(text: string): Date {
  return new Date(text.replace(" ", "T"));
}

/** Return how long ago something was: "3 min ago". */
export function ago(then: Date, now: Date): string {
  const seconds = Math.max(0, Math.round((now.getTime() - then.getTime()) / 1000));
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  const days = Math.floor(seconds / 86400);
  return days === 1 ? "yesterday" : `${count(days)} days ago`;
}

/** Return a date and a time of day, to the second, in the time zone of the reader. */
export function moment(then: Date): string {
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())}`;
  return `${day} ${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}`;
}

export interface Reference {
  schema: string;
  own: string;
  /** The name as addresses have it: in quotes where it must be. */
  name: string;
}

/** Return what a listed name means. Names can have dots: those of the schemas tell where the own name begins. */
export function referTo(listed: string, schemas: readonly string[]): Reference {
  const fitting = schemas.filter((schema) => listed.startsWith(`${schema}.`)).sort((one, other) => other.length - one.length);
  const schema = fitting[0] ?? listed.slice(0, Math.max(0, listed.indexOf(".")));
  const own = listed.slice(schema.length + 1);
  const part = (text: string) => (/^[^".]+$/.test(text) ? text : quoted(text));
  return { schema, own, name: `${part(schema)}.${part(own)}` };
}

/** Return the name of a table in two parts: its schema, and its own. Addresses have main.orders or "a.b".c. */
export function splitName(name: string): [string, string] {
  const parts = name.match(/"(?:[^"]|"")*"|[^."]+/g) ?? [name];
  const plain = parts.map((part) => (part.startsWith('"') ? part.slice(1, -1).replaceAll('""', '"') : part));
  return plain.length === 2 ? [plain[0] ?? "", plain[1] ?? ""] : ["main", plain.join(".")];
}

/** Return an identifier as SQL has it. */
export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** Return the name of a table as SQL has it, each part in quotes. */
export function quotedTable(name: string): string {
  return splitName(name).map(quoted).join(".");
}
