/** Materialized views: where they stand, how they are refreshed, and jobs that refresh and prove them. */

import { useState } from "preact/hooks";

import { get } from "./api.ts";
import { ago, count, counted, moment, parseTime } from "./format.ts";
import { useLoad, useNewest, useNow, useSession } from "./hooks.ts";
import { JobDialog, type Work } from "./jobs.tsx";
import { loadKnown } from "./names.ts";
import "./pages.css";
import { routeTo, type Route } from "./route.ts";
import { Empty, Failure, Figure, Icon, Waiting } from "./ui.tsx";

interface Listed {
  name: string;
  refresh: string;
  bases: string[];
  snapshot: number | null;
  lag: number | null;
  way: string | null;
  refreshed: string | null;
  stale: string | null;
}

interface Described {
  name: string;
  query: string;
  bases: string[];
  refresh: string;
  engine: string;
  way: string;
  reason: string | null;
  snapshot: number | null;
  lag_snapshots: number | null;
  lag_rows: number | null;
  last_refresh: string | null;
  last_way: string | null;
  last_reason: string | null;
  last_rows: number | null;
  last_seconds: number | null;
  stale: string | null;
}

const WAYS: Record<string, string> = {
  none: "nothing to do",
  append: "only new rows",
  merge: "changed groups, merged",
  groups: "changed groups, again",
  full: "everything again",
};

/** `rows` that have changed since, where they were counted: the snapshots since may be those of other tables. */
function State({ lag, stale, rows }: { lag: number | null; stale: string | null; rows?: number | null }) {
  if (stale) return <span class="stand bad">stale</span>;
  if (lag === null) return <span class="stand">never refreshed</span>;
  if (lag === 0 || rows === 0) return <span class="stand good">up to date</span>;
  return rows === undefined ? <span class="stand">{counted(lag, "snapshot")} ago</span> : <span class="stand warn">{counted(lag, "snapshot")} behind</span>;
}

export function ViewsPage({ route }: { route: Route }) {
  const chosen = route.path[1];
  return chosen === undefined ? <ViewList /> : <ViewFacts key={chosen} listed={chosen} />;
}

function refreshing(view: string): Work {
  return { title: `Refresh ${view}`, about: "The view is brought to the newest snapshot of its tables, in one commit. Readers see the old rows until then.", kind: "refresh", given: { view }, dry: true, verb: "Refresh" };
}

function proving(view: string): Work {
  return { title: `Verify ${view}`, about: "The query is computed in full at the snapshot where the view stands, and compared with its rows. Nothing is changed.", kind: "verify_view", given: { view }, dry: false, plan: { compares: "every row" }, verb: "Verify" };
}

/** Return the name of a view as the API takes it: quoted where it must be. */
async function refer(listed: string, signal: AbortSignal): Promise<string> {
  const known = await loadKnown(signal);
  return known.tables.find((each) => `${each.schema}.${each.own}` === listed || each.name === listed)?.name ?? listed;
}

function ViewList() {
  const { facts } = useSession();
  const newest = useNewest(2000);
  const now = useNow();
  const found = useLoad(
    async (signal) => {
      const [{ materialized_views: views }, known] = await Promise.all([get<{ materialized_views: Listed[] }>("materialized-views", {}, signal), loadKnown(signal)]);
      const names = new Map(known.tables.map((each) => [`${each.schema}.${each.own}`, each.name]));
      return views.map((each) => ({ ...each, reference: names.get(each.name) ?? each.name }));
    },
    [],
    newest,
  );
  const [work, setWork] = useState<Work | null>(null);
  const admin = facts.role === "admin";
  return (
    <article>
      <header class="title">
        <h1>Views</h1>
        <p class="dim">Materialized views keep the rows of a query. A refresh reads only what has changed, where the query allows it.</p>
      </header>
      {found.error && <Failure error={found.error} again={found.again} />}
      {!found.data && !found.error && <Waiting lines={6} />}
      {found.data && !found.data.length && (
        <Empty title="There are no materialized views.">
          <a href={routeTo(["sql"], { q: "CREATE MATERIALIZED VIEW totals AS SELECT …" })}>Write one in SQL</a>: CREATE MATERIALIZED VIEW … AS SELECT …
        </Empty>
      )}
      {!!found.data?.length && (
        <div class="framed scroll" tabIndex={0} role="region" aria-label="Materialized views">
          <table class="list views">
            <thead>
              <tr>
                <th>View</th>
                <th>Refreshed</th>
                <th>When</th>
                <th>How</th>
                <th>Schedule</th>
                {admin && <th>Do</th>}
              </tr>
            </thead>
            <tbody>
              {found.data.map((each) => (
                <tr key={each.name}>
                  <th scope="row" class="wrap">
                    <a href={routeTo(["views", each.name])}>{each.name}</a>
                    <div class="dim small">of {each.bases.join(", ")}</div>
                  </th>
                  <td>
                    <State lag={each.lag} stale={each.stale} />
                  </td>
                  <td>{each.refreshed === null ? "–" : <time title={moment(parseTime(each.refreshed))}>{ago(parseTime(each.refreshed), now)}</time>}</td>
                  <td class="wrap how">{each.way === null ? "–" : (WAYS[each.way] ?? each.way)}</td>
                  <td>{each.refresh}</td>
                  {admin && (
                    <td>
                      <span class="row-buttons">
                        <button type="button" class="refresh" aria-label={`Refresh ${each.name}`} onClick={() => setWork(refreshing(each.reference))}>
                          Refresh…
                        </button>
                        <button type="button" class="verify" aria-label={`Verify ${each.name}`} onClick={() => setWork(proving(each.reference))}>
                          Verify…
                        </button>
                      </span>
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {work && <JobDialog work={work} close={() => setWork(null)} done={found.again} />}
    </article>
  );
}

function ViewFacts({ listed }: { listed: string }) {
  const { facts } = useSession();
  const newest = useNewest(2000);
  const now = useNow();
  const found = useLoad(
    async (signal) => {
      const reference = await refer(listed, signal);
      return { reference, view: await get<Described>(`materialized-views/${encodeURIComponent(reference)}`, {}, signal) };
    },
    [listed],
    newest,
  );
  const [work, setWork] = useState<Work | null>(null);
  if (found.error && !found.data) return <Failure error={found.error} again={found.again} />;
  if (!found.data) return <Waiting lines={8} />;
  const { reference, view } = found.data;
  return (
    <article>
      <header class="title">
        <p class="crumb">
          <a href={routeTo(["views"])}>Views</a>
        </p>
        <h1>{view.name}</h1>
        <div class="actions">
          {facts.role === "admin" && (
            <>
              <button type="button" class="verify" onClick={() => setWork(proving(reference))}>
                <Icon name="check" /> Verify…
              </button>
              <button type="button" class="refresh" onClick={() => setWork(refreshing(reference))}>
                <Icon name="refresh" /> Refresh…
              </button>
            </>
          )}
          <a class="button" href={routeTo(["tables", reference])}>
            <Icon name="table" /> Rows
          </a>
        </div>
      </header>
      <dl class="figures">
        <Figure label="State" value={<State lag={view.lag_snapshots} stale={view.stale} rows={view.lag_rows} />} />
        <Figure label="Changed rows waiting" value={view.lag_rows === null ? "–" : count(view.lag_rows)} />
        <Figure label="Stands at" value={view.snapshot === null ? "–" : `#${view.snapshot}`} note={view.last_refresh === null ? undefined : ago(parseTime(view.last_refresh), now)} />
        <Figure label="Last refresh took" value={view.last_seconds === null ? "–" : `${view.last_seconds.toFixed(2)} s`} note={view.last_rows === null ? undefined : counted(view.last_rows, "row")} />
      </dl>
      {view.stale && <p class="stand bad">{view.stale}</p>}
      <div class="stacked">
        <section>
          <h2>Query</h2>
          <pre class="query-text" tabIndex={0}>
            {view.query}
          </pre>
        </section>
        <section>
          <h2>Refreshing</h2>
          <dl class="pairs">
            <dt>Schedule</dt>
            <dd>{view.refresh}</dd>
            <dt>Way</dt>
            <dd>
              {WAYS[view.way] ?? view.way}
              {view.reason && <span class="dim"> — {view.reason}</span>}
            </dd>
            <dt>The last one</dt>
            <dd>
              {view.last_way === null ? "–" : (WAYS[view.last_way] ?? view.last_way)}
              {view.last_reason && <span class="dim"> — {view.last_reason}</span>}
            </dd>
            <dt>Reads</dt>
            <dd>{view.bases.join(", ")}</dd>
            <dt>Engine</dt>
            <dd>{view.engine}</dd>
          </dl>
        </section>
      </div>
      {work && <JobDialog work={work} close={() => setWork(null)} done={found.again} />}
    </article>
  );
}
