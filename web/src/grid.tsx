/** Rows in a grid that draws only what is in sight, of any number of rows and columns. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { count } from "./format.ts";
import type { Row } from "./rows.ts";
import { moved, pageHeight, ROW, scrolledTo, type Place } from "./scrolling.ts";
import type { ResultColumn } from "./types.ts";

const SAMPLE = 60;
const LETTER = 7.6;
const MOST_SHOWN = 400;
const START: Place = { top: 0, scrolled: 0 };

export interface GridRows {
  readonly columns: ResultColumn[];
  readonly length: number;
  row(index: number): Row;
}

/** Return a value as text. */
export function shown(value: unknown): string {
  if (value === null || value === undefined) return "NULL";
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}…` : text;
}

/** Return whether a type is of numbers; DuckDB and Arrow name them differently. */
export function isNumber(type: string): boolean {
  return /^(u?(tiny|small|big|huge)?int(eger)?\d*|decimal.*|float|double|real|halffloat)\b/i.test(type) && !type.endsWith("]");
}

function widthOf(rows: GridRows, column: ResultColumn): number {
  let longest = Math.max(column.name.length + 1, Math.min(column.type.length, 18));
  for (let index = 0; index < Math.min(SAMPLE, rows.length); index += 1)
    longest = Math.max(longest, shown(rows.row(index)[column.name]).length);
  return Math.round(Math.min(46, longest) * LETTER + 26);
}

/** `link` returns where a row leads to: its number becomes a link then. Columns of `hidden` are not drawn. */
export function Grid({ rows: all, label, version, height = "100%", link, hidden }: { rows: GridRows; label: string; version: number; height?: string; link?: ((row: Row) => string | null) | undefined; hidden?: string }) {
  const rows = useMemo<GridRows>(() => (hidden === undefined ? all : { columns: all.columns.filter((column) => column.name !== hidden), length: all.length, row: (index) => all.row(index) }), [all, hidden, all.length]);
  const frame = useRef<HTMLDivElement>(null);
  const [place, setPlace] = useState(START);
  const [left, setLeft] = useState(0);
  const [current, setCurrent] = useState<number | null>(null);
  const [size, setSize] = useState({ width: 800, height: 400 });
  const sampled = rows.length >= SAMPLE ? SAMPLE : rows.length;
  const widths = useMemo(() => rows.columns.map((column) => widthOf(rows, column)), [rows, rows.columns, sampled]);
  useLayoutEffect(() => {
    const watched = new ResizeObserver(([entry]) => entry && setSize({ width: entry.contentRect.width, height: entry.contentRect.height }));
    watched.observe(frame.current!);
    return () => watched.disconnect();
  }, []);
  useEffect(() => {
    frame.current!.scrollTop = 0;
    setPlace(START);
    setCurrent(null);
  }, [rows]);
  // the keyboard goes from row to row, and Tab past all of them: there may be a million
  useEffect(() => {
    if (current !== null) frame.current!.querySelector<HTMLElement>(".line.current a.origin")?.focus({ preventScroll: true });
  }, [current]);
  const head = 46;
  const view = Math.max(ROW, size.height - head);
  const onScroll = () => {
    const element = frame.current!;
    setPlace((before) => scrolledTo(before, element.scrollTop, rows.length, view));
    setLeft(element.scrollLeft);
  };
  const onKeyDown = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const next = moved(current, event.key, rows.length, Math.max(1, Math.floor(view / ROW) - 1));
    if (next === null) return;
    event.preventDefault();
    const element = frame.current!;
    const [above, below] = [place.top - next * ROW, (next + 1) * ROW - (place.top + view)];
    if (next === 0) element.scrollTop = 0;
    else if (next === rows.length - 1) element.scrollTop = element.scrollHeight;
    else if (above > 0) element.scrollTop -= above;
    else if (below > 0) element.scrollTop += below;
    setPlace((before) => scrolledTo(before, element.scrollTop, rows.length, view));
    setCurrent(next);
  };
  const gutter = Math.max(44, String(rows.length).length * 9 + 22);
  const columns = inSight(widths, left, size.width);
  const first = Math.max(0, Math.floor(place.top / ROW) - 2);
  const last = Math.min(rows.length, Math.ceil((place.top + view) / ROW) + 2);
  const numbers = Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
  const wide = gutter + widths.reduce((sum, width) => sum + width, 0);
  return (
    <div ref={frame} class="grid" tabIndex={0} role="region" aria-label={label} onScroll={onScroll} onKeyDown={onKeyDown} style={{ height }} data-rows={rows.length} data-version={version}>
      <div role="table" aria-label={label} aria-rowcount={rows.length + 1} aria-colcount={rows.columns.length} class="space" style={{ height: `${pageHeight(rows.length) + head}px`, width: `${wide}px` }}>
        <div role="row" class="head" aria-rowindex={1} style={{ width: `${wide}px` }}>
          <span role="columnheader" class="gutter" style={{ width: `${gutter}px` }}>
            <span class="unseen">Row</span>
          </span>
          <span class="before" style={{ width: `${columns.before}px` }} />
          {columns.indexes.map((index) => {
            const column = rows.columns[index]!;
            return (
              <span role="columnheader" key={index} aria-colindex={index + 1} class={isNumber(column.type) ? "number" : ""} style={{ width: `${widths[index]}px` }} title={`${column.name} ${column.type}`}>
                <b>{column.name}</b>
                <small>{column.type}</small>
              </span>
            );
          })}
        </div>
        {numbers.map((number) => {
          const row = rows.row(number);
          return (
            <div role="row" key={number} class={`line${number % 2 ? " odd" : ""}${number === current ? " current" : ""}`} aria-rowindex={number + 2} style={{ width: `${wide}px`, transform: `translateY(${place.scrolled + head + number * ROW - place.top}px)` }}>
              <span role="cell" class="gutter" style={{ width: `${gutter}px` }}>
                {link && link(row) !== null ? (
                  <a class="origin" tabIndex={-1} href={link(row)!} aria-label={`Where row ${number + 1} comes from`} title="Where this row comes from">
                    {count(number + 1)}
                  </a>
                ) : (
                  count(number + 1)
                )}
              </span>
              <span class="before" style={{ width: `${columns.before}px` }} />
              {columns.indexes.map((index) => {
                const column = rows.columns[index]!;
                const value = row[column.name];
                const text = shown(value);
                return (
                  <span role="cell" key={index} class={value === null ? "null" : isNumber(column.type) ? "number" : ""} style={{ width: `${widths[index]}px` }} title={text.length > 40 ? text : undefined}>
                    {text}
                  </span>
                );
              })}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function inSight(widths: readonly number[], left: number, width: number): { before: number; indexes: number[] } {
  const indexes: number[] = [];
  let before = 0;
  let at = 0;
  widths.forEach((each, index) => {
    if (at + each < left - 200) before = at + each;
    else if (at < left + width + 200) indexes.push(index);
    at += each;
  });
  return { before, indexes };
}
