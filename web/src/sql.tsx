/** SQL: statements in tabs, and their results as a grid or a chart. */

import type { ComponentType } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { ask, get, newId, Problem, runSql, tablePath } from "./api.ts";
import { makeEditor, type Editor } from "./editor.ts";
import { ago, bytes, count, counted, parseTime } from "./format.ts";
import { Grid, type GridRows } from "./grid.tsx";
import { told } from "./history.ts";
import { useLoad, useNewest, useNow, useSession } from "./hooks.ts";
import { tableOf } from "./lineage.ts";
import { loadKnown } from "./names.ts";
import { rowAddress } from "./packet.tsx";
import { parametersFor, parametersOf } from "./params.ts";
import { PlanDialog } from "./plan.tsx";
import { routeTo, snapshotOf, type Route } from "./route.ts";
import type { Row, RowSet } from "./rows.ts";
import { keepPast, keepSheets, loadPast, loadSheets, nameOf, newSheet, opened, remembered, type Past, type Sheet } from "./sheets.ts";
import type { Snapshot, TableFacts } from "./types.ts";
import { Dialog, Empty, Failure, Icon, Tabs } from "./ui.tsx";

const MOST_TABLES = 80;
/** Milliseconds for which a service may take its time to cancel something. */
const PATIENCE = 3000;
const FORMATS = { csv: "text/csv", parquet: "application/vnd.apache.parquet", arrow: "application/vnd.apache.arrow.stream" } as const;

interface Outcome {
  running: boolean;
  rows?: RowSet;
  /** Counts the pieces that have come, so that the grid is drawn again. */
  turn: number;
  sql: string;
  at: number | null;
  error?: Error;
  began: number;
  seconds?: number;
  id: string;
  stop: AbortController;
  /** Has the id once somebody has cancelled the statement. */
  cancelled: Set<string>;
}

/** Load the names that the editor completes: tables with their columns, by schema. */
async function loadNames(signal: AbortSignal): Promise<Record<string, Record<string, string[]>>> {
  const known = await loadKnown(signal);
  const schemas: Record<string, Record<string, string[]>> = {};
  for (const { schema, own } of [...known.tables, ...known.views]) (schemas[schema] ??= {})[own] = [];
  const waiting = known.tables.filter((each) => !each.name.includes("/")).slice(0, MOST_TABLES);
  const worker = async () => {
    for (let each = waiting.shift(); each !== undefined; each = waiting.shift()) {
      try {
        const facts = await get<TableFacts>(tablePath(each.name), {}, signal);
        schemas[each.schema]![each.own] = facts.columns.map((column) => column.name);
      } catch {
        // it was dropped meanwhile; the others still complete
      }
    }
  };
  await Promise.all([worker(), worker(), worker()]);
  return schemas;
}

export function SqlPage({ route }: { route: Route }) {
  const { facts } = useSession();
  const [sheets, setSheets] = useState(loadSheets);
  const [chosen, setChosen] = useState(sheets[0]!.id);
  const [outcomes, setOutcomes] = useState<Record<string, Outcome>>({});
  const [past, setPast] = useState<Past[]>(() => loadPast(facts.principal));
  const [showPast, setShowPast] = useState(false);
  const [planned, setPlanned] = useState<Sheet | null>(null);
  const sheet = sheets.find((each) => each.id === chosen) ?? sheets[0]!;
  const outcome = outcomes[sheet.id];

  useEffect(() => keepSheets(sheets), [sheets]);
  useEffect(() => {
    if (route.query["q"] === undefined && route.query["at"] === undefined) return;
    const next = opened(sheets, chosen, route.query["q"], snapshotOf(route.query));
    setSheets(next.sheets);
    setChosen(next.chosen);
    history.replaceState(null, "", routeTo(["sql"]));
  }, [route]);

  const change = (part: Partial<Sheet>) => setSheets((before) => before.map((each) => (each.id === sheet.id ? { ...each, ...part } : each)));
  const note = (id: string, part: Partial<Outcome>) => setOutcomes((before) => ({ ...before, [id]: { ...before[id]!, ...part } }));

  const run = async (): Promise<void> => {
    if (!sheet.sql.trim() || outcome?.running) return;
    const now: Outcome = { running: true, turn: 0, sql: sheet.sql, at: sheet.at, began: performance.now(), id: newId(), stop: new AbortController(), cancelled: new Set() };
    const names = parametersOf(sheet.sql);
    setOutcomes((before) => ({ ...before, [sheet.id]: now }));
    let turn = 0;
    let drawn = 0;
    const seconds = () => (performance.now() - now.began) / 1000;
    try {
      const rows = await runSql(
        { sql: sheet.sql, parameters: parametersFor(names, sheet.given), version: sheet.at },
        {
          signal: now.stop.signal,
          id: now.id,
          told: (found) => {
            if (!found.columns.length || performance.now() - drawn < 100) return;
            drawn = performance.now();
            note(sheet.id, { rows: found, turn: (turn += 1) });
          },
        },
      );
      note(sheet.id, { running: false, rows, turn: turn + 1, seconds: seconds() });
      remember({ sql: sheet.sql, at: sheet.at, time: Date.now(), rows: rows.length });
    } catch (error) {
      const stopped = now.stop.signal.aborted || now.cancelled.has(now.id);
      const failed = stopped ? new Problem(0, "cancelled", "You cancelled the statement.") : error instanceof Error ? error : new Error(String(error));
      note(sheet.id, { running: false, error: failed, seconds: seconds() });
      if (!stopped) remember({ sql: sheet.sql, at: sheet.at, time: Date.now(), rows: null });
    }
  };
  const remember = (done: Past) =>
    setPast((before) => {
      const next = remembered(before, done);
      keepPast(facts.principal, next);
      return next;
    });
  /** Stop the work in the service, and then listening to it: a service that hears of the second first knows nothing of the first. */
  const cancel = () => {
    if (!outcome?.running || outcome.cancelled.has(outcome.id)) return;
    const { id, stop, cancelled } = outcome;
    cancelled.add(id);
    const late = setTimeout(() => stop.abort(), PATIENCE);
    ask(`sql/${id}`, { method: "DELETE" })
      .catch(() => {}) // it may just have ended
      .finally(() => (clearTimeout(late), stop.abort()));
  };
  const close = (id: string) => {
    outcomes[id]?.stop.abort();
    const rest = sheets.filter((each) => each.id !== id);
    const next = rest.length ? rest : [newSheet()];
    setSheets(next);
    if (id === chosen) setChosen(next[Math.max(0, sheets.findIndex((each) => each.id === id) - 1)]!.id);
  };
  const add = () => {
    const more = newSheet();
    setSheets([...sheets, more]);
    setChosen(more.id);
  };

  const names = parametersOf(sheet.sql);
  return (
    <div class="sql">
      <h1 class="unseen">SQL</h1>
      <div class="sheets">
        <ul aria-label="Statements">
          {sheets.map((each, index) => (
            <li key={each.id} class={each.id === sheet.id ? "on" : undefined}>
              <button type="button" class="pick" aria-current={each.id === sheet.id ? "true" : undefined} onClick={() => setChosen(each.id)}>
                {outcomes[each.id]?.running && <span class="spin" role="img" aria-label="running" />}
                {nameOf(each, index + 1)}
              </button>
              <button type="button" class="quiet" aria-label={`Close ${nameOf(each, index + 1)}`} onClick={() => close(each.id)}>
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
        <button type="button" class="quiet" aria-label="New statement" title="New statement" onClick={add}>
          <Icon name="plus" />
        </button>
        <button type="button" class="quiet past" onClick={() => setShowPast(true)}>
          <Icon name="history" /> <span>Earlier</span>
        </button>
      </div>
      <div class="editor card">
        <SqlEditor key={sheet.id} sheet={sheet} changed={(sql) => change({ sql })} run={run} />
        {names.length > 0 && (
          <div class="parameters">
            {names.map((name) => (
              <label key={name} class="inline">
                <span class="code">${name}</span>
                <input value={sheet.given[name] ?? ""} spellcheck={false} placeholder="null" onInput={(event) => change({ given: { ...sheet.given, [name]: event.currentTarget.value } })} onKeyDown={(event) => event.key === "Enter" && void run()} />
              </label>
            ))}
          </div>
        )}
        <div class="tools">
          {outcome?.running ? (
            <button type="button" class="primary cancel" onClick={cancel}>
              <Icon name="stop" /> Cancel
            </button>
          ) : (
            <button type="button" class="primary run" disabled={!sheet.sql.trim()} onClick={() => void run()} title="Ctrl+Enter">
              <Icon name="play" /> Run
            </button>
          )}
          <TimeTravel at={sheet.at} choose={(at) => change({ at })} />
          <span class="space" />
          <button type="button" class="quiet plan" disabled={!sheet.sql.trim()} onClick={() => setPlanned(sheet)}>
            <Icon name="tree" /> <span>Plan</span>
          </button>
          <Share sheet={sheet} />
          <Download sheet={sheet} />
        </div>
      </div>
      <Result outcome={outcome} />
      {planned && <PlanDialog statement={{ sql: planned.sql, parameters: parametersFor(parametersOf(planned.sql), planned.given), version: planned.at }} close={() => setPlanned(null)} />}
      {showPast && (
        <PastDialog
          past={past}
          close={() => setShowPast(false)}
          clear={() => (keepPast(facts.principal, []), setPast([]))}
          choose={(each) => {
            const next = opened(sheets, sheet.id, each.sql, each.at);
            setSheets(next.sheets);
            setChosen(next.chosen);
            setShowPast(false);
          }}
        />
      )}
    </div>
  );
}

/** What is typed belongs to the editor; a sheet is another one if its text comes from elsewhere. */
function SqlEditor({ sheet, changed, run }: { sheet: Sheet; changed: (sql: string) => void; run: () => void }) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const calls = useRef({ changed, run });
  calls.current = { changed, run };
  const newest = useNewest(10_000);
  const names = useLoad(loadNames, [], newest);
  useEffect(() => {
    const made = makeEditor(host.current!, sheet.sql, { changed: (text) => calls.current.changed(text), run: () => calls.current.run() });
    editor.current = made;
    made.focus();
    return () => made.close();
  }, []);
  useEffect(() => {
    if (names.data) editor.current?.complete(names.data);
  }, [names.data]);
  return <div ref={host} class="code-host" data-names={names.data ? "known" : "asked"} />;
}

function TimeTravel({ at, choose }: { at: number | null; choose: (at: number | null) => void }) {
  const newest = useNewest(3000);
  const now = useNow();
  const found = useLoad((signal) => get<{ snapshots: Snapshot[] }>("snapshots", { limit: 200 }, signal), [], newest);
  const list = found.data?.snapshots ?? [];
  const missing = at !== null && !list.some((each) => each.snapshot_id === at);
  return (
    <label class="inline travel">
      <Icon name="history" />
      <span class="unseen">Snapshot</span>
      <select class={at === null ? "" : "past"} onChange={(event) => choose(event.currentTarget.value === "" ? null : Number(event.currentTarget.value))}>
        <option value="" selected={at === null}>
          newest snapshot
        </option>
        {missing && (
          <option value={at} selected>
            #{at}
          </option>
        )}
        {list.map((each) => (
          <option key={each.snapshot_id} value={each.snapshot_id} selected={each.snapshot_id === at}>
            #{each.snapshot_id} · {ago(parseTime(each.snapshot_time), now)} · {told(each).slice(0, 48)}
          </option>
        ))}
      </select>
    </label>
  );
}

function Share({ sheet }: { sheet: Sheet }) {
  const [copied, setCopied] = useState(false);
  const link = new URL(routeTo(["sql"], { q: sheet.sql, at: sheet.at }), location.href).href;
  const copy = async () => {
    history.replaceState(null, "", link);
    try {
      await navigator.clipboard.writeText(link);
      setCopied(true);
      setTimeout(() => setCopied(false), 2000);
    } catch {
      setCopied(false); // it is in the address bar
    }
  };
  return (
    <button type="button" class="quiet share-link" disabled={!sheet.sql.trim()} onClick={() => void copy()} title="An address that opens this statement, at this snapshot">
      <Icon name={copied ? "check" : "link"} /> <span>{copied ? "Copied" : "Share"}</span>
    </button>
  );
}

function Download({ sheet }: { sheet: Sheet }) {
  const [error, setError] = useState<Error | null>(null);
  const fetchAs = async (name: keyof typeof FORMATS) => {
    try {
      const body = { sql: sheet.sql, parameters: parametersFor(parametersOf(sheet.sql), sheet.given), version: sheet.at };
      const answer = await ask("sql", { method: "POST", body, accept: FORMATS[name] });
      const address = URL.createObjectURL(await answer.blob());
      const link = document.createElement("a");
      link.href = address;
      link.download = `result.${name}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
    } catch (failed) {
      setError(failed instanceof Error ? failed : new Error(String(failed)));
    }
  };
  return (
    <>
      <label class="inline download">
        <Icon name="download" />
        <span class="unseen">Download the result</span>
        <select
          value=""
          disabled={!sheet.sql.trim()}
          onChange={(event) => {
            void fetchAs(event.currentTarget.value as keyof typeof FORMATS);
            event.currentTarget.value = "";
          }}
        >
          <option value="">Download</option>
          <option value="csv">CSV</option>
          <option value="parquet">Parquet</option>
          <option value="arrow">Arrow</option>
        </select>
      </label>
      {error && (
        <Dialog title="Download" close={() => setError(null)}>
          <Failure error={error} />
        </Dialog>
      )}
    </>
  );
}

const VIEWS = [
  { id: "grid", label: "Rows" },
  { id: "chart", label: "Chart" },
];

function Result({ outcome }: { outcome: Outcome | undefined }) {
  const [view, setView] = useState("grid");
  const [Chart, setChart] = useState<ComponentType<{ rows: GridRows; link?: ((row: Row) => string | null) | undefined }> | null>(null);
  useEffect(() => {
    if (view === "chart" && Chart === null) void import("./chart.tsx").then((found) => setChart(() => found.default));
  }, [view]);
  const now = useNow(outcome?.running ? 200 : 60_000);
  // the rows grow in place: a new object tells the grid so
  const rows = outcome?.rows;
  const grown = useMemo<GridRows | null>(() => rows ?? null, [rows]);
  if (outcome === undefined)
    return (
      <section class="result">
        <Empty title="Nothing was run yet.">Write a statement and press Ctrl+Enter. Names of tables and columns complete themselves.</Empty>
      </section>
    );
  const changed = rows?.facts["changed_rows"];
  // rows with their ids lead to where they come from
  const table = rows?.columns.some((column) => column.name === "rowid") ? tableOf(outcome.sql) : null;
  const link = table === null ? undefined : (row: Row) => rowAddress(table, row["rowid"], outcome.at);
  const seconds = outcome.seconds ?? (now.getTime() && (performance.now() - outcome.began) / 1000);
  return (
    <section class="result" aria-label="Result">
      <div class="bar">
        <p role="status" class="said" data-done={outcome.running ? "no" : "yes"}>
          {outcome.running && <span class="spin" role="img" aria-label="running" />}
          {rows && typeof changed === "number" ? <strong>{counted(changed, "row")} changed</strong> : rows ? <strong>{counted(rows.length, "row")}</strong> : null}
          <span class="dim">
            {seconds.toFixed(seconds < 10 ? 2 : 0)} s{rows ? ` · ${bytes(rows.size)}` : ""}
          </span>
        </p>
        {rows && rows.length > 0 && <Tabs label="View" choices={VIEWS} chosen={view} choose={setView} />}
      </div>
      {outcome.error && <Failure error={outcome.error} />}
      <div id="tab-panel" role="tabpanel" aria-labelledby={rows && rows.length > 0 ? `tab-${view}` : undefined} aria-label={rows && rows.length > 0 ? undefined : "Rows"} class="panel">
        {grown && rows!.length > 0 && view === "grid" && <Grid rows={grown} label="Rows of the result" version={outcome.turn} link={link} />}
        {grown && rows!.length > 0 && view === "chart" && !outcome.running && Chart && <Chart rows={grown} link={link} />}
        {rows && rows.length === 0 && !outcome.running && !outcome.error && typeof changed !== "number" && <Empty title="The statement returned no rows." />}
      </div>
    </section>
  );
}

function PastDialog({ past, choose, clear, close }: { past: readonly Past[]; choose: (past: Past) => void; clear: () => void; close: () => void }) {
  const now = useNow();
  return (
    <Dialog title="Earlier statements" close={close}>
      {past.length === 0 && <Empty title="There are none yet.">What you run is kept in this browser.</Empty>}
      <ul class="past-list">
        {past.map((each) => (
          <li key={`${each.at}-${each.sql}`}>
            <button type="button" onClick={() => choose(each)}>
              <code>{each.sql.length > 300 ? `${each.sql.slice(0, 300)}…` : each.sql}</code>
              <span class="dim">
                {ago(new Date(each.time), now)} · {each.rows === null ? "failed" : `${count(each.rows)} rows`}
                {each.at !== null && ` · at #${each.at}`}
              </span>
            </button>
          </li>
        ))}
      </ul>
      {past.length > 0 && (
        <div class="buttons">
          <button type="button" onClick={clear}>
            Forget them
          </button>
        </div>
      )}
    </Dialog>
  );
}
