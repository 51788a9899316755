/** The open statements of a tab of the browser, and those that were run before. */

export interface Sheet {
  id: string;
  sql: string;
  at: number | null;
  given: Record<string, string>;
}

export interface Past {
  sql: string;
  at: number | null;
  time: number;
  rows: number | null;
}

const SHEETS = "quacklake.sheets";
const MOST_SHEETS = 30;
const MOST_PAST = 100;

function read<T>(store: Storage, name: string): T | null {
  try {
    return JSON.parse(store.getItem(name) ?? "null") as T | null;
  } catch {
    return null;
  }
}

export function newSheet(sql = "", at: number | null = null): Sheet {
  return { id: Math.random().toString(36).slice(2, 10), sql, at, given: {} };
}

export function loadSheets(): Sheet[] {
  const found = read<Sheet[]>(sessionStorage, SHEETS);
  return Array.isArray(found) && found.length ? found : [newSheet()];
}

export function keepSheets(sheets: readonly Sheet[]): void {
  sessionStorage.setItem(SHEETS, JSON.stringify(sheets.slice(-MOST_SHEETS)));
}

/** Return the name of a sheet: what its first line begins with. */
export function nameOf(sheet: Sheet, number: number): string {
  const line = sheet.sql.split("\n").find((each) => each.trim() && !each.trim().startsWith("--"));
  const plain = (line ?? "").trim().replace(/\s+/g, " ");
  return plain ? (plain.length > 22 ? `${plain.slice(0, 21)}…` : plain) : `Query ${number}`;
}

/** Put what a link asks for into a new sheet, in place of the open one if that is empty. Nothing is run. */
export function opened(sheets: readonly Sheet[], chosen: string, sql: string | undefined, at: number | null): { sheets: Sheet[]; chosen: string } {
  const now = sheets.find((each) => each.id === chosen) ?? sheets[0]!;
  if (sql === undefined) return { sheets: sheets.map((each) => (each === now ? { ...each, at } : each)), chosen: now.id };
  const same = sheets.find((each) => each.sql === sql && each.at === at);
  if (same) return { sheets: [...sheets], chosen: same.id };
  const more = newSheet(sql, at);
  if (!now.sql.trim()) return { sheets: sheets.map((each) => (each === now ? more : each)), chosen: more.id };
  return { sheets: [...sheets, more].slice(-MOST_SHEETS), chosen: more.id };
}

/** Add a statement to those that were run, once each. */
export function remembered(past: readonly Past[], run: Past): Past[] {
  return [run, ...past.filter((each) => each.sql !== run.sql || each.at !== run.at)].slice(0, MOST_PAST);
}

export function loadPast(principal: string): Past[] {
  const found = read<Past[]>(localStorage, `quacklake.past.${principal}`);
  return Array.isArray(found) ? found : [];
}

export function keepPast(principal: string, past: readonly Past[]): void {
  if (past.length) localStorage.setItem(`quacklake.past.${principal}`, JSON.stringify(past));
  else localStorage.removeItem(`quacklake.past.${principal}`);
}
