/** A table at one of its snapshots: columns, rows, files and history. */

import { useMemo, useState } from "preact/hooks";

import { ask, get, gone, readRows, runSql, tablePath } from "./api.ts";
import { Columns } from "./columns.tsx";
import { Compare } from "./compare.tsx";
import { Files } from "./files.tsx";
import { bytes, count, quotedTable, splitName } from "./format.ts";
import { Grid } from "./grid.tsx";
import { replaceRoute, useLoad, useNewest, useSession } from "./hooks.ts";
import { JobDialog, type Work } from "./jobs.tsx";
import { rowAddress } from "./packet.tsx";
import { routeTo, snapshotOf, type Route } from "./route.ts";
import { SnapshotList } from "./snapshots.tsx";
import { loadTags, TagDialog } from "./tags.tsx";
import { Timeline } from "./timeline.tsx";
import type { Snapshot, TableFacts } from "./types.ts";
import { Empty, Failure, Figure, Icon, Tabs, Waiting } from "./ui.tsx";

const PREVIEW = 500;
const MOST_HISTORY = 5000;
const TABS = [
  { id: "columns", label: "Columns" },
  { id: "preview", label: "Preview" },
  { id: "files", label: "Files" },
  { id: "history", label: "History" },
  { id: "compare", label: "Compare" },
];

export function TablePage({ name, view, route }: { name: string; view: boolean; route: Route }) {
  // no path of the API has a name with a slash in it, but SQL has
  return view || name.includes("/") ? <ViewPage name={name} view={view} /> : <TruePage name={name} route={route} />;
}

function TruePage({ name, route }: { name: string; route: Route }) {
  const { facts: who } = useSession();
  const at = snapshotOf(route.query);
  const tab = TABS.some((each) => each.id === route.query["tab"]) ? route.query["tab"]! : "columns";
  const go = (change: { at?: number | null; tab?: string }) =>
    replaceRoute(routeTo(["tables", name], { at: change.at === undefined ? at : change.at, tab: change.tab ?? tab }));

  const newest = useNewest();
  const history = useLoad((signal) => get<{ history: Snapshot[] }>(tablePath(name, "/history"), { limit: MOST_HISTORY }, signal), [name], newest);
  const snapshots = useMemo(() => [...(history.data?.history ?? [])].reverse(), [history.data]);
  // only a snapshot that changed this table can show something new
  const last = snapshots.at(-1)?.snapshot_id ?? 0;
  const now = useLoad((signal) => get<TableFacts>(tablePath(name), {}, signal), [name], last);
  const then = useLoad(async (signal) => (at === null ? null : get<TableFacts>(tablePath(name), { version: at }, signal)), [name, at]);
  const facts = at === null ? now.data : then.data?.snapshot === at ? then.data : (then.data ?? now.data);
  const error = at === null ? now.error : then.error;
  const [work, setWork] = useState<Work | null>(null);
  const [tagging, setTagging] = useState<number | null>(null);
  const tags = useLoad(loadTags, [], newest);
  const [schema, own] = splitName(name);
  const previous = snapshots.at(-2)?.snapshot_id;

  if (at !== null && gone(then.error))
    return (
      <>
        <Failure error={then.error!} />
        <p>
          <a href={routeTo(["tables", name], { tab })}>Show the newest snapshot</a>
        </p>
      </>
    );
  if (error && !facts) return <Failure error={error} again={at === null ? now.again : then.again} />;
  return (
    <article class="table" aria-busy={at === null ? now.loading : then.loading}>
      <header class="title">
        <p class="crumb">
          <a href={routeTo(["tables"])}>Tables</a> <span class="dim">/ {schema}</span>
        </p>
        <h1>{own}</h1>
        <p class="dim about">{facts?.comment}</p>
        <div class="actions">
          {at !== null && who.role === "admin" && (
            <button type="button" class="restore" onClick={() => setWork(restoring(name, at))}>
              Restore #{at}
            </button>
          )}
          {at === null && who.role === "admin" && (
            <button type="button" class="undo" disabled={previous === undefined} onClick={() => setWork({ ...restoring(name, previous!), title: `Undo snapshot ${last} of ${name}` })}>
              Undo…
            </button>
          )}
          {who.role === "admin" && (
            <button type="button" class="set-tag" disabled={last === 0} onClick={() => setTagging(at ?? last)}>
              Tag…
            </button>
          )}
          <a class="button" href={routeTo(["sql"], { q: `FROM ${quotedTable(name)} LIMIT 1000`, at })}>
            <Icon name="sql" /> Query
          </a>
        </div>
      </header>
      {error && <Failure error={error} again={then.again} />}
      <dl class="figures" data-snapshot={facts?.snapshot} data-at={at ?? "newest"}>
        <Figure label="Rows" value={facts ? count(facts.rows) : "–"} />
        <Figure label="Columns" value={facts ? count(facts.columns.length) : "–"} />
        {facts?.bytes !== undefined && <Figure label="Size" value={bytes(facts.bytes)} note={facts.inlined_rows ? `${count(facts.inlined_rows)} rows in the catalog` : undefined} />}
        {facts?.files !== undefined && <Figure label="Files" value={count(facts.files)} />}
        {!!facts?.partitioned_by?.length && <Figure label="Partitioned by" value={<span class="code">{facts.partitioned_by.join(", ")}</span>} />}
        {!!facts?.sorted_by?.length && <Figure label="Sorted by" value={<span class="code">{facts.sorted_by.join(", ")}</span>} />}
      </dl>
      {snapshots.length > 0 && <Timeline snapshots={snapshots} at={at} tags={tags.data ?? []} choose={(chosen) => go({ at: chosen })} />}
      {!history.data && !history.error && <div class="timeline waits" />}
      {history.error && !history.data && <Failure error={history.error} again={history.again} />}
      <Tabs label="Parts of the table" choices={TABS} chosen={tab} choose={(id) => go({ tab: id })} />
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab}`} class="panel">
        {!facts && <Waiting lines={6} />}
        {facts && tab === "columns" && <Columns key={name} name={name} facts={facts} newest={now.data?.columns ?? facts.columns} />}
        {facts && tab === "preview" && <Preview name={name} facts={facts} />}
        {facts && tab === "files" && <Files name={name} facts={facts} />}
        {facts && tab === "history" && <SnapshotList snapshots={snapshots.toReversed()} chosen={at ?? last} choose={(chosen) => go({ at: chosen === last ? null : chosen })} />}
        {facts && tab === "compare" && snapshots.length > 0 && <Compare name={name} snapshots={snapshots} at={at} />}
      </div>
      {work && <JobDialog work={work} close={() => setWork(null)} done={() => go({ at: null })} />}
      {tagging !== null && <TagDialog snapshot={tagging} close={() => setTagging(null)} done={tags.again} />}
    </article>
  );
}

function restoring(table: string, at: number): Work {
  return {
    title: `Restore ${table}`,
    about: `The rows and columns of snapshot ${at} become the newest ones, in one new snapshot. Nothing of the history is lost.`,
    kind: "restore",
    given: { table, to: at },
    dry: true,
    verb: "Restore",
  };
}

function Preview({ name, facts }: { name: string; facts: TableFacts }) {
  // a column of that name hides the numbers of rows
  const numbered = !facts.columns.some((column) => column.name.toLowerCase() === "rowid");
  const rows = useLoad(
    async (signal) => ({
      at: facts.snapshot,
      found: await readRows(await ask(tablePath(name, "/rows"), { query: { limit: PREVIEW, version: facts.snapshot, row_ids: numbered || null }, signal })),
    }),
    [name, facts.snapshot],
  );
  if (rows.error) return <Failure error={rows.error} again={rows.again} />;
  if (!rows.data) return <Waiting lines={8} />;
  const { at, found } = rows.data;
  if (found.length === 0) return <Empty title="The table has no rows at this snapshot." />;
  return (
    <>
      <Grid rows={found} label={`Rows of ${name}`} version={at} height={`${Math.min(560, found.length * 30 + 64)}px`} {...(numbered ? { hidden: "rowid", link: (row) => rowAddress(name, row["rowid"], at) } : {})} />
      {facts.rows > found.length && (
        <p class="dim under">
          The first {count(found.length)} of {count(facts.rows)} rows. <a href={routeTo(["sql"], { q: `FROM ${quotedTable(name)}`, at: facts.snapshot })}>See all in SQL</a>
        </p>
      )}
    </>
  );
}

function ViewPage({ name, view }: { name: string; view: boolean }) {
  const newest = useNewest();
  const [schema, own] = splitName(name);
  const rows = useLoad((signal) => runSql({ sql: `FROM ${quotedTable(name)} LIMIT ${PREVIEW}` }, { signal }), [name], newest);
  return (
    <article class="table">
      <header class="title">
        <p class="crumb">
          <a href={routeTo(["tables"])}>Tables</a> <span class="dim">/ {schema}</span>
        </p>
        <h1>
          {own} {view && <span class="tag">view</span>}
        </h1>
        <div class="actions">
          <a class="button" href={routeTo(["sql"], { q: `FROM ${quotedTable(name)} LIMIT 1000` })}>
            <Icon name="sql" /> Query
          </a>
        </div>
      </header>
      {rows.error && <Failure error={rows.error} again={rows.again} />}
      {!rows.data && !rows.error && <Waiting lines={8} />}
      {rows.data && rows.data.length === 0 && <Empty title="The view has no rows." />}
      {rows.data && rows.data.length > 0 && <Grid rows={rows.data} label={`Rows of ${name}`} version={newest} height={`${Math.min(600, rows.data.length * 30 + 64)}px`} />}
    </article>
  );
}
