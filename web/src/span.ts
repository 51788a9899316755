/** Ranges of time that a chart shows, in milliseconds. */

export interface Span {
  from: number;
  to: number;
}

const SECOND = 1000;
const HOUR = 3600 * SECOND;
export const WIDTHS: readonly [string, number][] = [
  ["hour", HOUR],
  ["day", 24 * HOUR],
  ["week", 7 * 24 * HOUR],
  ["month", 30 * 24 * HOUR],
  ["year", 365 * 24 * HOUR],
];
/** Nothing is seen in less time than this. */
export const LEAST = SECOND;

/** Return a span as far as there is something to see: no longer than the whole, and inside it. */
export function within(span: Span, whole: Span): Span {
  const length = Math.min(Math.max(span.to - span.from, LEAST), Math.max(whole.to - whole.from, LEAST));
  const middle = (span.from + span.to) / 2;
  const from = Math.max(whole.from, Math.min(middle - length / 2, Math.max(whole.from, whole.to - length)));
  return { from: Math.round(from), to: Math.round(from + length) };
}

/** Return a span of another length; what is at `at` stays where it is. */
export function zoomed(span: Span, factor: number, at = (span.from + span.to) / 2): Span {
  return { from: at - (at - span.from) * factor, to: at + (span.to - at) * factor };
}

/** Return a span moved by a share of its length. */
export function panned(span: Span, share: number): Span {
  const step = (span.to - span.from) * share;
  return { from: span.from + step, to: span.to + step };
}

/** Return a span of a length around the same middle. */
export function around(span: Span, length: number): Span {
  const middle = (span.from + span.to) / 2;
  return { from: middle - length / 2, to: middle + length / 2 };
}

/** Return how long a span is, for people: 3.5 days. */
export function lengthOf(span: Span): string {
  const length = span.to - span.from;
  const units: [string, number][] = [
    ["year", 365 * 24 * HOUR],
    ["day", 24 * HOUR],
    ["hour", HOUR],
    ["minute", 60 * SECOND],
  ];
  for (const [name, unit] of units)
    if (length >= unit * 0.995) {
      const value = Math.round((length / unit) * 10) / 10;
      return `${value} ${name}${value === 1 ? "" : "s"}`;
    }
  return `${Math.round(length / SECOND)} seconds`;
}

/** Return the span of an address; null where it names none. */
export function spanOf(query: Record<string, string>): Span | null {
  const [from, to] = [query["from"], query["to"]].map((text) => (text !== undefined && /^-?\d{1,15}$/.test(text) ? Number(text) : null));
  return from === null || to === null || from === undefined || to === undefined || from >= to ? null : { from, to };
}

/** Return the texts of a list in an address. */
export function listOf(text: string | undefined): string[] {
  try {
    const found = JSON.parse(text ?? "[]") as unknown;
    return Array.isArray(found) ? found.filter((each) => typeof each === "string").slice(0, 20) : [];
  } catch {
    return [];
  }
}
