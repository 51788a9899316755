/** Requests to the service that this page comes from. */

import { RowSet } from "./rows.ts";
import type { ProblemBody } from "./types.ts";

const TOKEN = "quacklake.token";
const LAKE = "quacklake.lake";
const OPERATOR = "quacklake.operator";
/** The page is at …/ui/, the API beside it. */
const BASE = new URL("../api/v1/", document.baseURI);

/** Whether an error says that something does not exist, or no longer does. */
export function gone(error: Error | undefined): boolean {
  return error instanceof Problem && (error.status === 404 || error.status === 410);
}

/** An answer that says why something cannot be done. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly hint: string | null = null,
  ) {
    super(detail);
  }
}

export const session = {
  get token(): string | null {
    return sessionStorage.getItem(TOKEN);
  },
  get lake(): string | null {
    return sessionStorage.getItem(LAKE);
  },
  /** Whether the token is one of an operator, who manages tenants and has no lake. */
  get operator(): boolean {
    return sessionStorage.getItem(OPERATOR) !== null;
  },
  keep(token: string | null, lake: string | null, operator = false): void {
    for (const [name, value] of [
      [TOKEN, token],
      [LAKE, lake],
      [OPERATOR, operator ? "yes" : null],
    ] as const)
      if (value) sessionStorage.setItem(name, value);
      else sessionStorage.removeItem(name);
  },
};

type Values = Record<string, string | number | boolean | null | undefined>;

export interface Asked {
  method?: string;
  query?: Values;
  body?: unknown;
  accept?: string;
  signal?: AbortSignal | undefined;
  headers?: Record<string, string>;
}

/** Send a request, and return its answer. Throws a Problem for any that is not a success. */
export async function ask(path: string, asked: Asked = {}): Promise<Response> {
  const url = new URL(path, BASE);
  const query: Values = { ...asked.query, lake: session.lake };
  for (const [name, value] of Object.entries(query))
    if (value !== null && value !== undefined) url.searchParams.set(name, String(value));
  const headers: Record<string, string> = { Accept: asked.accept ?? "application/json", ...asked.headers };
  if (session.token) headers["Authorization"] = `Bearer ${session.token}`;
  if (asked.body !== undefined) headers["Content-Type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetch(url, {
      method: asked.method ?? "GET",
      headers,
      body: asked.body === undefined ? null : JSON.stringify(asked.body),
      signal: asked.signal ?? null,
      credentials: "omit",
    });
  } catch (error) {
    if (asked.signal?.aborted) throw error;
    throw new Problem(0, "unreachable", "The service does not answer.", "Is it still running? This page tries again by itself.");
  }
  if (answer.ok) return answer;
  let told: Partial<ProblemBody> = {};
  try {
    told = (await answer.json()) as ProblemBody;
  } catch {
    // a proxy answered, not the service
  }
  throw new Problem(answer.status, told.code ?? "http", told.detail ?? `The service answered ${answer.status}.`, told.hint);
}

/** Return the JSON of an answer. */
export async function get<T>(path: string, query: Values = {}, signal?: AbortSignal): Promise<T> {
  return (await (await ask(path, { query, signal })).json()) as T;
}

/** Return the path of a table, with what follows it. */
export function tablePath(name: string, more = ""): string {
  return `tables/${encodeURIComponent(name)}${more}`;
}

export interface Statement {
  sql: string;
  parameters?: unknown;
  version?: number | null;
}

/** Return an id for a request, by which it can be cancelled. */
export function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (each) => each.toString(16).padStart(2, "0")).join("");
}

/** Read the rows of an answer, and tell of them as they come. */
export async function readRows(answer: Response, told: (rows: RowSet) => void = () => {}): Promise<RowSet> {
  const rows = new RowSet();
  const reader = answer.body!.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    rows.push(value);
    told(rows);
  }
  rows.end();
  return rows;
}

/** Run a statement, and return its rows. */
export async function runSql(
  statement: Statement,
  options: { signal?: AbortSignal; id?: string; told?: (rows: RowSet) => void } = {},
): Promise<RowSet> {
  const answer = await ask("sql", {
    method: "POST",
    body: statement,
    signal: options.signal,
    ...(options.id === undefined ? {} : { headers: { "X-Request-Id": options.id } }),
  });
  return readRows(answer, options.told);
}
