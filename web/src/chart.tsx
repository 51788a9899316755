/** A chart of a result. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { chooseChart, histogram, natureOf, placeOf, points, type ChartKind, type Choice } from "./choice.ts";
import { count } from "./format.ts";
import { shown, type GridRows } from "./grid.tsx";
import type { Row } from "./rows.ts";
import { THEME } from "./theme.ts";
import { MOMENT, TICKS } from "./ticks.ts";
import { Empty } from "./ui.tsx";

/** More rows than this say no more in a chart. */
const MOST = 100_000;
const COLOURS = ["--one", "--two", "--three", "--four"];
const KINDS: ChartKind[] = ["line", "bar", "scatter", "histogram"];

/** `link` returns where the row of a point leads to, on a click. */
export default function Chart({ rows, link }: { rows: GridRows; link?: ((row: Row) => string | null) | undefined }) {
  const first = useMemo(() => chooseChart(rows.columns, rows.length), [rows]);
  const [choice, setChoice] = useState<Choice | null>(first);
  useEffect(() => setChoice(first), [first]);
  const numbers = rows.columns.filter((column) => natureOf(column.type) === "number");
  if (choice === null) return <Empty title="There is nothing to draw.">A chart needs rows with at least one column of numbers.</Empty>;
  const change = (part: Partial<Choice>) => setChoice({ ...choice, ...part });
  return (
    <div class="chart-page">
      <div class="bar">
        <label class="inline">
          Chart
          <select name="kind" value={choice.kind} onChange={(event) => change({ kind: event.currentTarget.value as ChartKind })}>
            {KINDS.map((kind) => (
              <option key={kind}>{kind}</option>
            ))}
          </select>
        </label>
        {choice.kind !== "histogram" && (
          <label class="inline">
            across
            <select name="x" value={choice.x ?? ""} onChange={(event) => change({ x: event.currentTarget.value || null })}>
              <option value="">row number</option>
              {rows.columns.map((column) => (
                <option key={column.name}>{column.name}</option>
              ))}
            </select>
          </label>
        )}
        <label class="inline">
          up
          <select name="y" value={choice.y[0]} onChange={(event) => change({ y: [event.currentTarget.value, ...choice.y.slice(1).filter((name) => name !== event.currentTarget.value)] })}>
            {numbers.map((column) => (
              <option key={column.name}>{column.name}</option>
            ))}
          </select>
        </label>
        {rows.length > MOST && <span class="dim">the first {count(MOST)} rows</span>}
      </div>
      <Plot rows={rows} choice={choice} link={link} />
    </div>
  );
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function Plot({ rows, choice, link }: { rows: GridRows; choice: Choice; link: ((row: Row) => string | null) | undefined }) {
  const frame = useRef<HTMLDivElement>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const changed = () => setTurn((before) => before + 1);
    addEventListener(THEME, changed);
    return () => removeEventListener(THEME, changed);
  }, []);
  useEffect(() => {
    const element = frame.current!;
    const size = () => ({ width: Math.max(240, element.clientWidth), height: Math.max(220, element.clientHeight - 40) });
    const { options, data, order } = drawn(rows, choice);
    const plot = new uPlot({ ...options, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"), ...size() }, data, element);
    element.dataset["points"] = String(data[0].length);
    const clicked = () => {
      const index = plot.cursor.idx == null ? undefined : order[plot.cursor.idx];
      const address = index === undefined || link === undefined ? null : link(rows.row(index));
      if (address !== null) location.hash = address;
    };
    plot.over.addEventListener("click", clicked);
    const watched = new ResizeObserver(() => plot.setSize(size()));
    watched.observe(element);
    return () => {
      watched.disconnect();
      plot.destroy();
    };
  }, [rows, choice, turn]);
  return <div class="plot" ref={frame} role="img" aria-label={`A ${choice.kind} chart of ${choice.y.join(", ")}${choice.x && choice.kind !== "histogram" ? ` across ${choice.x}` : ""}`} />;
}

function drawn(rows: GridRows, choice: Choice): { options: Omit<uPlot.Options, "width" | "height">; data: uPlot.AlignedData; order: number[] } {
  const taken = Array.from({ length: Math.min(MOST, rows.length) }, (_, index) => rows.row(index));
  const types = new Map(rows.columns.map((column) => [column.name, column.type]));
  const nature = (name: string) => natureOf(types.get(name) ?? "");
  const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui" };
  const bars = uPlot.paths.bars!({ size: [0.72, 80], radius: 0.08 });
  const fill = (index: number) => `${colour(COLOURS[index]!)}cc`;
  if (choice.kind === "histogram") {
    const name = choice.y[0]!;
    const bins = histogram(taken.map((row) => placeOf(row[name], nature(name))));
    return {
      options: { scales: { x: { time: false } }, axes: [axis, { ...axis, size: 70 }], series: [{ label: name }, { label: "rows", paths: uPlot.paths.bars!({ size: [1, Infinity], gap: 1 }), fill: fill(0), points: { show: false } }] },
      data: [bins.edges, bins.counts],
      order: [],
    };
  }
  const named = choice.x !== null && nature(choice.x) === "text";
  const across = named ? { ...choice, x: null } : choice;
  const found = points(taken, across, nature);
  const time = choice.x !== null && nature(choice.x) === "time";
  const labels = named ? taken.map((row) => shown(row[choice.x!])) : [];
  const series = choice.y.map((label, index): uPlot.Series => {
    const stroke = colour(COLOURS[index]!);
    if (choice.kind === "bar") return { label, stroke, fill: fill(index), paths: bars, points: { show: false } };
    if (choice.kind === "scatter") return { label, stroke, paths: () => null, points: { show: true, size: 5, fill: `${stroke}99`, stroke, width: 0 } };
    return { label, stroke, width: 2, points: { show: found.x.length < 60, size: 5, fill: stroke } };
  });
  const below: uPlot.Axis = named
    ? { ...axis, splits: (_plot, _index, low, high) => few(Math.max(0, Math.ceil(low)), Math.min(labels.length - 1, Math.floor(high))), values: (_plot, at) => at.map((each) => cut(labels[each] ?? "")) }
    : axis;
  const range = choice.kind === "bar" && !time ? { range: (_plot: uPlot, low: number, high: number): [number, number] => [low - 0.6, high + 0.6] } : {};
  return {
    options: { scales: { x: { time, ...range }, y: choice.kind === "bar" ? { range: (_plot, low, high) => [Math.min(0, low), Math.max(0, high * 1.05)] } : {} }, axes: [time ? { ...below, values: TICKS } : below, { ...axis, size: 70 }], series: [{ label: choice.x ?? "row", ...(time ? { value: MOMENT } : {}), ...(named ? { value: (_plot: uPlot, at: number | null) => (at === null ? "–" : (labels[at] ?? "")) } : {}) }, ...series] },
    data: [found.x, ...found.y] as uPlot.AlignedData,
    order: found.order,
  };
}

function few(low: number, high: number): number[] {
  const step = Math.max(1, Math.ceil((high - low + 1) / 12));
  return Array.from({ length: Math.max(0, Math.floor((high - low) / step) + 1) }, (_, index) => low + index * step);
}

function cut(text: string): string {
  return text.length > 14 ? `${text.slice(0, 13)}…` : text;
}
