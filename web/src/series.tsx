/** Charts of series that refine as one zooms: only the points of the range that is in sight are loaded. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { ask, runSql, tablePath, get } from "./api.ts";
import { natureOf } from "./choice.ts";
import { count, quoted, quotedTable } from "./format.ts";
import { replaceRoute, useLoad, useNewest } from "./hooks.ts";
import { loadKnown } from "./names.ts";
import { routeTo, type Route } from "./route.ts";
import { around, lengthOf, listOf, panned, spanOf, WIDTHS, within, zoomed, type Span } from "./span.ts";
import { THEME } from "./theme.ts";
import type { TableFacts } from "./types.ts";
import { MOMENT, TICKS } from "./ticks.ts";
import { Failure, Waiting } from "./ui.tsx";

interface Line {
  times: number[];
  values: (number | null)[];
  low: (number | null)[] | null;
  high: (number | null)[] | null;
}

interface Drawn {
  path: string;
  from: string;
  to: string;
  resolution: string | null;
  lines: Record<string, Line>;
}

interface Note {
  at: number;
  text: string;
}

const COLOURS = ["--one", "--two", "--three", "--four"];
const MOST_COLUMNS = 4;
const MOST_NOTES = 100;
/** How long a range must stand still before its points are asked for. */
const CALM = 60;

async function load(path: string, span: Span | null, width: number, columns: readonly string[], signal: AbortSignal): Promise<Drawn> {
  const wanted = columns.map((each) => `columns=${encodeURIComponent(each)}`).join("&");
  const query = { path, width, ...(span === null ? {} : { from: Math.floor(span.from), to: Math.ceil(span.to) }) };
  // a link may have another path than what it leads to
  return { ...((await (await ask(`pond/series?${wanted}`, { query, signal })).json()) as Drawn), path };
}

function spanOfDrawn(found: readonly Drawn[]): Span | null {
  const real = found.filter((each) => Object.values(each.lines).some((line) => line.times.length > 0));
  if (!real.length) return null;
  return { from: Math.min(...real.map((each) => Date.parse(each.from))), to: Math.max(...real.map((each) => Date.parse(each.to))) };
}

export default function SeriesCharts({ paths, route }: { paths: readonly string[]; route: Route }) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const newest = useNewest(5000);
  const key = paths.join("\n");
  const hidden = listOf(route.query["without"]);
  const change = (query: Record<string, string | number | null>) => replaceRoute(routeTo(route.path, { ...route.query, ...query }));

  useLayoutEffect(() => {
    const measured = () => setWidth(Math.max(200, Math.round((frame.current?.clientWidth ?? 0) / 50) * 50));
    const watched = new ResizeObserver(measured);
    watched.observe(frame.current!);
    measured();
    return () => watched.disconnect();
  }, []);

  // the whole, which says how far one can go, and which columns there are
  const whole = useLoad((signal) => Promise.all(paths.map((path) => load(path, null, 200, [], signal))), [key], newest);
  const extent = useMemo(() => (whole.data ? spanOfDrawn(whole.data) : null), [whole.data]);
  const columns = useMemo(() => [...new Set((whole.data ?? []).flatMap((each) => Object.keys(each.lines)))], [whole.data]);
  const shown = columns.filter((name) => !hidden.includes(name)).slice(0, hidden.length ? undefined : MOST_COLUMNS);
  const wanted = spanOf(route.query);
  const span = useMemo(() => (extent === null ? null : wanted === null ? extent : within(wanted, extent)), [extent, wanted?.from, wanted?.to]);

  const calm = useCalm(span);
  const asked = `${key}\n${width}\n${shown.join("\n")}`;
  const points = useLoad(
    async (signal) => {
      if (calm === null || width === 0) return null;
      const found = await Promise.all(
        paths.map((path) => {
          const own = Object.keys(whole.data?.find((each) => each.path === path)?.lines ?? {}).filter((name) => shown.includes(name));
          return own.length ? load(path, calm, width, own, signal) : Promise.resolve({ path, from: "", to: "", resolution: null, lines: {} } as Drawn);
        }),
      );
      return { found, span: calm, asked, of: whole.data };
    },
    [asked, calm?.from, calm?.to, whole.data],
    newest,
  );
  const notes = useNotes(route.query["notes"], span);

  const move = (next: Span) => {
    if (extent === null) return;
    const found = within(next, extent);
    const all = found.from <= extent.from && found.to >= extent.to;
    change({ from: all ? null : found.from, to: all ? null : found.to });
  };
  const data = points.data?.found ?? null;
  const loaded = points.data?.span;
  const error = whole.error ?? points.error;
  const resolutions = [...new Set((data ?? []).filter((each) => Object.keys(each.lines).length).map((each) => each.resolution ?? "readings"))];
  const total = (data ?? []).reduce((sum, each) => sum + Object.values(each.lines).reduce((more, line) => more + line.times.length, 0), 0);
  return (
    <section class="charts" aria-label="Charts" ref={frame} data-from={span?.from} data-to={span?.to} data-points={total} data-loaded={loaded && points.data?.asked === asked && points.data.of === whole.data && paths.every((path) => whole.data?.some((each) => each.path === path)) && loaded.from === span?.from && loaded.to === span.to ? "yes" : "no"}>
      {span && extent && <Tools span={span} extent={extent} move={move} />}
      {error && <Failure error={error} again={whole.error ? whole.again : points.again} />}
      {!whole.data && !whole.error && <Waiting lines={8} />}
      {whole.data && extent === null && <p class="dim">The series has no readings yet.</p>}
      {span &&
        shown.map((name) => (
          <Panel key={name} name={name} drawn={paths.map((path) => ({ label: paths.length > 1 ? path : name, line: data?.find((each) => each.path === path)?.lines[name] }))} span={span} notes={notes} move={move} />
        ))}
      {span && (
        <div class="chart-foot">
          <p class="dim" role="status">
            {count(total)} points from {resolutions.join(" and ") || "…"} · {lengthOf(span)}, in UTC
          </p>
          {columns.length > 1 && (
            <fieldset>
              <legend class="unseen">Columns</legend>
              {columns.map((name) => (
                <label key={name} class="inline">
                  <input type="checkbox" checked={shown.includes(name)} onChange={() => {
                    const next = shown.includes(name) ? columns.filter((each) => !shown.includes(each) || each === name) : columns.filter((each) => !shown.includes(each) && each !== name);
                    change({ without: JSON.stringify(next) });
                  }} />
                  {name}
                </label>
              ))}
            </fieldset>
          )}
          <NoteTable chosen={route.query["notes"]} choose={(table) => change({ notes: table })} />
        </div>
      )}
      {notes.length > 0 && span && (
        <ol class="notes" aria-label="Annotations">
          {notes.map((note, index) => (
            <li key={index}>
              <button type="button" class="link" onClick={() => move(around({ from: note.at, to: note.at }, Math.max(60_000, (span.to - span.from) / 4)))}>
                <b>{index + 1}</b> {note.text}
              </button>
              <span class="dim">{new Date(note.at).toISOString().slice(0, 16).replace("T", " ")}</span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

/** Return a span once it has stood still for a moment. */
function useCalm(span: Span | null): Span | null {
  const [calm, setCalm] = useState(span);
  useEffect(() => {
    if (calm === null || span === null) {
      setCalm(span);
      return;
    }
    const timer = setTimeout(() => setCalm(span), CALM);
    return () => clearTimeout(timer);
  }, [span?.from, span?.to]);
  return calm;
}

function Tools({ span, extent, move }: { span: Span; extent: Span; move: (span: Span) => void }) {
  const length = span.to - span.from;
  const all = span.from <= extent.from && span.to >= extent.to;
  return (
    <div class="chart-tools" role="toolbar" aria-label="Range of time">
      <button type="button" class="quiet" aria-label="Earlier" disabled={span.from <= extent.from} onClick={() => move(panned(span, -0.5))}>
        ←
      </button>
      <button type="button" class="quiet" aria-label="Later" disabled={span.to >= extent.to} onClick={() => move(panned(span, 0.5))}>
        →
      </button>
      <button type="button" class="quiet" aria-label="Zoom in" onClick={() => move(zoomed(span, 0.5))}>
        +
      </button>
      <button type="button" class="quiet" aria-label="Zoom out" disabled={all} onClick={() => move(zoomed(span, 2))}>
        −
      </button>
      {WIDTHS.filter(([, each]) => each < (extent.to - extent.from) * 1.02).map(([name, each]) => (
        <button key={name} type="button" class="quiet width" aria-pressed={Math.abs(length - each) < each * 0.01} onClick={() => move(around(span, each))}>
          {name}
        </button>
      ))}
      <button type="button" class="quiet width" aria-pressed={all} onClick={() => move(extent)}>
        all
      </button>
      <span class="dim range-text">
        {text(span.from)} – {text(span.to)}
      </span>
    </div>
  );
}

function text(time: number): string {
  return new Date(time).toISOString().slice(0, 16).replace("T", " ");
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

interface Part {
  label: string;
  line: Line | undefined;
}

/** Put lines side by side: what has no point at a time of another line is undefined, and a gap is null. */
function joined(parts: readonly Part[]): { data: uPlot.AlignedData; bands: boolean[] } {
  const tables = parts.map(({ line }): uPlot.AlignedData => {
    const times = (line?.times ?? []).map((each) => each / 1e6);
    const more = line?.low && line.high ? [line.low, line.high] : [];
    return [times, line?.values ?? [], ...more];
  });
  return { data: tables.length === 1 ? tables[0]! : uPlot.join(tables), bands: tables.map((each) => each.length > 2) };
}

function Panel({ name, drawn, span, notes, move }: { name: string; drawn: readonly Part[]; span: Span; notes: readonly Note[]; move: (span: Span) => void }) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const now = useRef({ span, notes, move });
  now.current = { span, notes, move };
  const [theme, setTheme] = useState(0);
  const { data, bands } = useMemo(() => joined(drawn), [drawn.map((each) => each.label).join("\n"), ...drawn.map((each) => each.line)]);
  const latest = useRef(data);
  latest.current = data;
  const shape = `${drawn.map((each) => each.label).join("\n")}|${bands.join()}`;

  useEffect(() => {
    const changed = () => setTheme((before) => before + 1);
    addEventListener(THEME, changed);
    return () => removeEventListener(THEME, changed);
  }, []);

  useEffect(() => {
    const element = frame.current!;
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui" };
    const series: uPlot.Series[] = [{ label: "time", value: MOMENT }];
    const between: uPlot.Band[] = [];
    drawn.forEach((part, index) => {
      const stroke = colour(COLOURS[index % COLOURS.length]!);
      series.push({ label: part.label, stroke, width: 1.5, points: { show: false }, value: (_plot, value) => (value === null || value === undefined ? "–" : String(Math.round(value * 1000) / 1000)) });
      if (!bands[index]) return;
      const low = series.length;
      for (let each = 0; each < 2; each += 1) series.push({ label: "bound", class: "bound", stroke: "transparent", width: 0, points: { show: false } });
      between.push({ series: [low + 1, low], fill: `${stroke}33` });
    });
    const size = () => ({ width: Math.max(200, element.clientWidth), height: 200 });
    const made = new uPlot(
      {
        ...size(),
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        scales: { x: { time: true, range: () => [now.current.span.from / 1000, now.current.span.to / 1000] } },
        axes: [{ ...axis, values: TICKS }, { ...axis, size: 60 }],
        series,
        bands: between,
        cursor: { sync: { key: "series" }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => () => (now.current.move({ from: -8e15, to: 8e15 }), null) } },
        hooks: {
          setSelect: [
            (chart) => {
              if (chart.select.width < 4) return;
              const from = chart.posToVal(chart.select.left, "x") * 1000;
              const to = chart.posToVal(chart.select.left + chart.select.width, "x") * 1000;
              chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
              if (from < to) now.current.move({ from, to });
            },
          ],
          draw: [(chart) => mark(chart, now.current.notes)],
        },
      },
      latest.current,
      element,
    );
    plot.current = made;
    const unlisten = listen(made.over, made, now);
    const watched = new ResizeObserver(() => made.setSize(size()));
    watched.observe(element);
    return () => {
      unlisten();
      watched.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, theme]);
  useEffect(() => plot.current?.setData(data), [data]);
  useEffect(() => plot.current?.setScale("x", { min: span.from / 1000, max: span.to / 1000 }), [span.from, span.to]);
  useEffect(() => plot.current?.redraw(false), [notes]);

  const pressed = (event: KeyboardEvent) => {
    const next: Record<string, () => Span> = {
      ArrowLeft: () => panned(span, -0.2),
      ArrowRight: () => panned(span, 0.2),
      ArrowUp: () => zoomed(span, 0.5),
      ArrowDown: () => zoomed(span, 2),
      "+": () => zoomed(span, 0.5),
      "-": () => zoomed(span, 2),
      Home: () => ({ from: -8e15, to: 8e15 }),
    };
    const found = next[event.key];
    if (found === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move(found());
  };
  return (
    <figure class="panel-chart">
      <figcaption>{name}</figcaption>
      <div ref={frame} class="series-plot" tabIndex={0} role="group" aria-label={`${name}: arrow keys move and zoom, Home shows all`} onKeyDown={pressed} data-name={name} />
    </figure>
  );
}

/** Listen to the wheel, and to drags with Shift, which move the range. Returns how to stop. */
function listen(over: HTMLElement, plot: uPlot, now: { current: { span: Span; move: (span: Span) => void } }): () => void {
  const wheel = (event: WheelEvent) => {
    const { span, move } = now.current;
    if (event.ctrlKey || event.metaKey) {
      const at = plot.posToVal(event.clientX - over.getBoundingClientRect().left, "x") * 1000;
      move(zoomed(span, event.deltaY < 0 ? 0.75 : 1 / 0.75, at));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(panned(span, event.deltaX / over.clientWidth));
    else return;
    event.preventDefault();
  };
  const down = (event: MouseEvent) => {
    if (!event.shiftKey) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    const { span } = now.current;
    const dragged = (moved: MouseEvent) => now.current.move(panned(span, (event.clientX - moved.clientX) / over.clientWidth));
    const up = () => {
      removeEventListener("mousemove", dragged);
      removeEventListener("mouseup", up);
    };
    addEventListener("mousemove", dragged);
    addEventListener("mouseup", up);
  };
  over.addEventListener("wheel", wheel, { passive: false });
  over.addEventListener("mousedown", down, { capture: true });
  return () => {
    over.removeEventListener("wheel", wheel);
    over.removeEventListener("mousedown", down, { capture: true });
  };
}

/** Draw a line for each annotation, with its number. */
function mark(chart: uPlot, notes: readonly Note[]): void {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.strokeStyle = colour("--schema");
  ctx.fillStyle = colour("--schema");
  ctx.textAlign = "left";
  ctx.font = `${11 * devicePixelRatio}px system-ui`;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  notes.forEach((note, index) => {
    const x = Math.round(chart.valToPos(note.at / 1000, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) return;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(String(index + 1), x + 4 * devicePixelRatio, bbox.top + 11 * devicePixelRatio);
  });
  ctx.restore();
}

// -- annotations -------------------------------------------------------------------------------------------------------

function NoteTable({ chosen, choose }: { chosen: string | undefined; choose: (table: string | null) => void }) {
  const newest = useNewest(10_000);
  const names = useLoad(loadKnown, [], newest);
  const tables = (names.data?.tables ?? []).filter((each) => !/^pond(_|$)/.test(each.schema));
  if (!tables.length && chosen === undefined) return null;
  return (
    <label class="inline">
      Annotations
      <select name="notes" onChange={(event) => choose(event.currentTarget.value || null)}>
        <option value="">none</option>
        {tables.map((each) => (
          <option key={each.name} value={each.name} selected={each.name === chosen}>
            {each.name}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Return the annotations of a range: the rows of a table with a time, with its texts. */
function useNotes(table: string | undefined, span: Span | null): readonly Note[] {
  const newest = useNewest(5000);
  const columns = useLoad(async (signal) => (table === undefined ? null : ((await get<TableFacts>(tablePath(table), {}, signal)).columns)), [table]);
  const found = useLoad(
    async (signal) => {
      const time = columns.data?.find((each) => natureOf(each.type) === "time");
      const texts = (columns.data ?? []).filter((each) => natureOf(each.type) === "text").slice(0, 3);
      if (table === undefined || span === null || time === undefined) return [];
      const said = texts.length ? `concat_ws(': ', ${texts.map((each) => `CAST(${quoted(each.name)} AS VARCHAR)`).join(", ")})` : "''";
      const rows = await runSql(
        {
          sql: `SELECT epoch_ms(${quoted(time.name)}) AS at_ms, ${said} AS note FROM ${quotedTable(table)} WHERE epoch_ms(${quoted(time.name)}) BETWEEN $first AND $last ORDER BY 1 LIMIT ${MOST_NOTES}`,
          parameters: { first: Math.floor(span.from), last: Math.ceil(span.to) },
        },
        { signal },
      );
      return Array.from({ length: rows.length }, (_, index): Note => ({ at: Number(rows.row(index)["at_ms"]), text: String(rows.row(index)["note"]) }));
    },
    [table, columns.data, span?.from, span?.to],
    newest,
  );
  return table === undefined ? [] : (found.data ?? []);
}
