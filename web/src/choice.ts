/** Charts of a result: what goes where, chosen by the types of its columns. */

import type { Row } from "./rows.ts";
import type { ResultColumn } from "./types.ts";

export type ChartKind = "line" | "bar" | "scatter" | "histogram";
export type Nature = "number" | "time" | "text";

export interface Choice {
  kind: ChartKind;
  x: string | null;
  y: string[];
}

/** Return the nature of a column, by DuckDB's or Arrow's name of its type. */
export function natureOf(type: string): Nature {
  if (/^(date|timestamp)/i.test(type) && !type.endsWith("[]")) return "time";
  const number = /^(u?(tiny|small|big|huge)?int(eger)?\d*|decimal.*|float|double|real|halffloat)\b/i.test(type);
  return number && !type.endsWith("[]") ? "number" : "text";
}

const IS_ID = /(^|_)id$/i;

/** Choose a chart: time makes a line, names make bars, two numbers points, one number a histogram. Null for none. */
export function chooseChart(columns: readonly ResultColumn[], rows: number): Choice | null {
  const of = (nature: Nature) => columns.filter((column) => natureOf(column.type) === nature).map((column) => column.name);
  const [times, numbers, texts] = [of("time"), of("number"), of("text")];
  const measures = numbers.filter((name) => !IS_ID.test(name));
  const drawn = measures.length ? measures : numbers;
  if (!drawn.length || rows === 0) return null;
  if (times[0] !== undefined) return { kind: "line", x: times[0], y: drawn.slice(0, 4) };
  if (texts[0] !== undefined && rows <= 200) return { kind: "bar", x: texts[0], y: drawn.slice(0, 1) };
  if (numbers.length >= 2) {
    const x = numbers[0]!;
    const rest = drawn.filter((name) => name !== x);
    const y = rest.length ? rest : numbers.slice(1);
    return { kind: rows <= 60 ? "bar" : "scatter", x, y: y.slice(0, 1) };
  }
  return { kind: "histogram", x: null, y: drawn.slice(0, 1) };
}

/** Return a value as a place on an axis; what has none is NaN. Times are in seconds. */
export function placeOf(value: unknown, nature: Nature): number {
  if (value === null || value === undefined) return Number.NaN;
  if (nature !== "time") return Number(value);
  const text = String(value);
  const zoned = /([zZ]|[+-]\d\d(:?\d\d)?)$/.test(text.slice(10)) ? text : `${text.replace(" ", "T")}${text.length > 10 ? "Z" : "T00:00:00Z"}`;
  return Date.parse(zoned) / 1000;
}

export interface Bins {
  edges: number[];
  counts: number[];
}

/** Count values in bins of equal width. */
export function histogram(values: readonly number[], most = 40): Bins {
  const known = values.filter(Number.isFinite);
  if (!known.length) return { edges: [], counts: [] };
  let [low, high] = [known[0]!, known[0]!];
  for (const value of known) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low === high) return { edges: [low], counts: [known.length] };
  const bins = Math.max(1, Math.min(most, Math.ceil(Math.sqrt(known.length))));
  const width = (high - low) / bins;
  const counts = new Array<number>(bins).fill(0);
  for (const value of known) counts[Math.min(bins - 1, Math.floor((value - low) / width))]! += 1;
  return { edges: counts.map((_, index) => low + (index + 0.5) * width), counts };
}

/** Return the points of a line or a cloud, by their place on the x axis; rows without a place are left out. `order` has their rows. */
export function points(rows: readonly Row[], choice: Choice, nature: (name: string) => Nature): { x: number[]; y: (number | null)[][]; order: number[] } {
  const x = choice.x;
  const places = rows.map((row, index) => (x === null ? index : placeOf(row[x], nature(x))));
  const order = places.map((_, index) => index).filter((index) => Number.isFinite(places[index]));
  order.sort((one, other) => places[one]! - places[other]!);
  const value = (row: Row, name: string) => {
    const place = placeOf(row[name], nature(name));
    return Number.isFinite(place) ? place : null;
  };
  return { x: order.map((index) => places[index]!), y: choice.y.map((name) => order.map((index) => value(rows[index]!, name))), order };
}
