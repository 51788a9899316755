/** The lake at a glance: its size, what happens in it, and what needs care. */

import { useMemo, useState } from "preact/hooks";

import { get, Problem } from "./api.ts";
import { Begin } from "./begin.tsx";
import { Due } from "./due.tsx";
import { ago, bytes, count, counted, parseTime } from "./format.ts";
import { useHeard, useLoad, useNewest, useNow, useSession } from "./hooks.ts";
import { JobDialog, type Work } from "./jobs.tsx";
import { Lags } from "./lags.tsx";
import "./look.css";
import { perMinute } from "./minutes.ts";
import { loadKnown, type Known } from "./names.ts";
import { routeTo } from "./route.ts";
import { SnapshotList } from "./snapshots.tsx";
import type { Care, Snapshot } from "./types.ts";
import { Card, Empty, Failure, Figure, Waiting } from "./ui.tsx";

const MINUTES = 30;
const RECENT = 1000;

export function OverviewPage() {
  const { facts } = useSession();
  const newest = useNewest();
  const names = useLoad(loadKnown, [], newest);
  const snapshots = useLoad((signal) => get<{ snapshots: Snapshot[]; next: number | null }>("snapshots", { limit: RECENT }, signal), [], newest);
  const slowly = useNewest(5000);
  const care = useLoad((signal) => careOf(signal), [], slowly);
  const [work, setWork] = useState<Work | null>(null);
  const list = snapshots.data?.snapshots ?? [];
  const tables = care.data?.tables ?? [];
  const size = tables.reduce((sum, table) => sum + table.bytes, 0);
  const files = tables.reduce((sum, table) => sum + table.files, 0);
  return (
    <article class="overview">
      <header class="title">
        <h1>{facts.catalog ?? "Lake"}</h1>
        <p class="dim">
          DuckLake {facts.format_version} · you are {facts.role}
        </p>
      </header>
      {names.error && <Failure error={names.error} again={names.again} />}
      {facts.demo && <Begin />}
      <dl class="figures">
        <Figure label="Tables" value={names.data ? count(names.data.tables.length) : "–"} note={names.data?.views.length ? counted(names.data.views.length, "view") : undefined} />
        {care.data !== null && <Figure label="Size" value={care.data ? bytes(size) : "–"} note={care.data ? growth(care.data.growth) : undefined} />}
        {care.data !== null && <Figure label="Files" value={care.data ? count(files) : "–"} />}
        <Figure label="Snapshots" value={snapshots.data ? `${count(list.length)}${snapshots.data.next === null ? "" : "+"}` : "–"} note={care.data ? `over ${span(care.data.oldest_snapshot_seconds)}` : undefined} />
        <Rate />
      </dl>
      <div class="cards">
        <div>
          <Card title="Commits" aside={<span class="dim">per minute, last {MINUTES} minutes</span>}>
            {snapshots.error && !snapshots.data && <Failure error={snapshots.error} again={snapshots.again} />}
            {snapshots.data ? <Commits snapshots={list} /> : !snapshots.error && <Waiting lines={4} />}
          </Card>
          {care.data !== null && (
            <Card title="Care" aside={care.data && facts.role === "admin" && <Upkeep care={care.data} start={setWork} />}>
              {care.error && !care.data && <Failure error={care.error} again={care.again} />}
              {!care.data && !care.error && <Waiting lines={3} />}
              {care.data && <Due care={care.data} />}
            </Card>
          )}
          <Lags />
        </div>
        <div>
          {care.data !== null && (
            <Card title="Largest tables">
              {!care.data && !care.error && <Waiting lines={3} />}
              {care.data && <Sizes tables={tables} known={names.data} />}
            </Card>
          )}
          <Card title="Latest snapshots" aside={<a href={routeTo(["snapshots"])}>All snapshots</a>}>
            {snapshots.data ? <SnapshotList snapshots={list.slice(0, 5)} /> : !snapshots.error && <Waiting lines={5} />}
          </Card>
        </div>
      </div>
      {work && <JobDialog work={work} close={() => setWork(null)} done={() => (care.again(), snapshots.again())} />}
    </article>
  );
}

/** Load what needs care; null for those who may not know. */
async function careOf(signal: AbortSignal): Promise<Care | null> {
  try {
    return await get<Care>("care", {}, signal);
  } catch (error) {
    if (error instanceof Problem && (error.status === 403 || error.status === 404)) return null;
    throw error;
  }
}

function span(seconds: number): string {
  return ago(new Date(0), new Date(seconds * 1000)).replace(/ ago$/, "").replace("just now", "a moment").replace("yesterday", "a day");
}

/** Say by how much the lake has grown; nothing for one that has not. */
function growth({ bytes: grown, seconds }: Care["growth"]): string | undefined {
  if (!grown) return undefined;
  return `${grown > 0 ? "+" : "−"}${bytes(Math.abs(grown))} in ${span(seconds)}`;
}

function Rate() {
  const { commits } = useHeard();
  const now = useNow(1000).getTime();
  return <Figure label="Commits a minute" value={count(commits.filter((then) => now - then < 60_000).length)} note="since you look" />;
}

function Commits({ snapshots }: { snapshots: readonly Snapshot[] }) {
  const now = useNow(5000);
  const bars = useMemo(() => perMinute(snapshots.map((each) => parseTime(each.snapshot_time).getTime()), now.getTime(), MINUTES), [snapshots, now]);
  const most = Math.max(1, ...bars);
  const total = bars.reduce((sum, each) => sum + each, 0);
  return (
    <figure class="commits">
      <div class="bars" role="img" aria-label={`${counted(total, "commit")} in the last ${MINUTES} minutes, at most ${most} a minute`}>
        {bars.map((each, index) => (
          <i key={index} style={{ height: `${Math.max(each ? 4 : 1, (each / most) * 100)}%` }} class={each ? "" : "none"} title={`${counted(each, "commit")}, ${MINUTES - 1 - index} min ago`} />
        ))}
      </div>
      <figcaption class="dim">
        <span>{MINUTES} min ago</span>
        <span>{counted(total, "commit")}</span>
        <span>now</span>
      </figcaption>
    </figure>
  );
}

function Sizes({ tables, known }: { tables: Care["tables"]; known: Known | undefined }) {
  const address = (listed: string) => known?.tables.find((each) => `${each.schema}.${each.own}` === listed)?.name ?? listed;
  const largest = [...tables].sort((one, other) => other.bytes - one.bytes).slice(0, 6);
  const most = Math.max(1, ...largest.map((table) => table.bytes));
  if (!largest.length) return <Empty title="There are no rows yet." />;
  return (
    <ul class="sizes">
      {largest.map((table) => (
        <li key={table.table}>
          <a href={routeTo(["tables", address(table.table)])}>{table.table}</a>
          <span class="number">{table.bytes ? bytes(table.bytes) : <span class="dim">in the catalog</span>}</span>
          <i>
            <b style={{ width: `${(table.bytes / most) * 100}%` }} />
          </i>
        </li>
      ))}
    </ul>
  );
}

function Upkeep({ care, start }: { care: Care; start: (work: Work) => void }) {
  return (
    <span class="buttons">
      <button
        type="button"
        class="maintain"
        onClick={() =>
          start({
            title: "Maintain the lake",
            about: "Small files are merged, deleted rows are removed from files, rows in the catalog are written into files, and what is due is expired. Readers see the same rows.",
            kind: "maintain",
            given: {},
            dry: false,
            plan: care.due.map((each) => ({ [each.job.replaceAll("_", " ")]: [each.table, each.reason].filter(Boolean).join(": ") })),
            verb: "Maintain",
          })
        }
      >
        Maintain…
      </button>
      <button
        type="button"
        class="expire"
        onClick={() => start({ title: "Expire snapshots", about: "Snapshots older than a week go, except the last ten, and so does what only they can see.", kind: "expire", given: { older_than: "7 days", keep_last: 10 }, dry: true, verb: "Expire" })}
      >
        Expire…
      </button>
      <button type="button" class="cleanup" onClick={() => start({ title: "Clean up", about: "Files that no snapshot needs any more are removed from the store.", kind: "cleanup", given: {}, dry: true, verb: "Clean up" })}>
        Clean up…
      </button>
    </span>
  );
}
