/** The snapshots of the lake: what changed, when, and by whom. */

import { useState } from "preact/hooks";

import { get } from "./api.ts";
import { ago, moment, parseTime } from "./format.ts";
import { kindOf, KINDS, told } from "./history.ts";
import { useLoad, useNewest, useNow, useRoute, useSession } from "./hooks.ts";
import { JobDialog, type Work } from "./jobs.tsx";
import { routeTo, snapshotOf } from "./route.ts";
import type { Snapshot } from "./types.ts";
import { Empty, Failure, Waiting } from "./ui.tsx";

const PAGE = 200;

/** The snapshots come newest first. */
export function SnapshotList({ snapshots, chosen, choose, more }: { snapshots: readonly Snapshot[]; chosen?: number; choose?: (id: number) => void; more?: (snapshot: Snapshot) => preact.ComponentChildren }) {
  const now = useNow();
  if (!snapshots.length) return <Empty title="There are no snapshots." />;
  return (
    <ol class="snapshots">
      {snapshots.map((each) => {
        const kind = kindOf(each.changes);
        const time = parseTime(each.snapshot_time);
        return (
          <li key={each.snapshot_id} class={each.snapshot_id === chosen ? "on" : undefined}>
            <span class={`mark ${kind}`} aria-hidden="true" />
            <span class="id">
              {choose ? (
                <button type="button" class="link" onClick={() => choose(each.snapshot_id)} aria-label={`Go to snapshot ${each.snapshot_id}`}>
                  #{each.snapshot_id}
                </button>
              ) : (
                `#${each.snapshot_id}`
              )}
            </span>
            <div class="what">
              <p>{told(each)}</p>
              <p class="dim">
                <span class={`kind ${kind}`}>{KINDS[kind]}</span>
                {each.commit_message && each.description && <span>{each.description}</span>}
                {!each.commit_message && each.operation && <span>{each.operation}</span>}
              </p>
            </div>
            <div class="when">
              <span>{each.author ?? ""}</span>
              <time class="dim" dateTime={each.snapshot_time} title={moment(time)}>
                {ago(time, now)}
              </time>
            </div>
            {more && <div class="more">{more(each)}</div>}
          </li>
        );
      })}
    </ol>
  );
}

export function SnapshotsPage() {
  const { facts } = useSession();
  const newest = useNewest();
  const [limit, setLimit] = useState(PAGE);
  const at = snapshotOf(useRoute().query);
  const before = at === null ? null : at + 1;
  const found = useLoad((signal) => get<{ snapshots: Snapshot[]; next: number | null }>("snapshots", { limit, before }, signal), [limit, before], newest);
  const [work, setWork] = useState<Work | null>(null);
  const list = found.data?.snapshots ?? [];
  const missing = at !== null && found.data !== undefined && list[0]?.snapshot_id !== at;
  return (
    <article class="narrow">
      <header class="title">
        <h1>Snapshots</h1>
        <p class="dim">Every commit makes one. Each can be read for as long as it is kept.</p>
      </header>
      {at !== null && (
        <p>
          {missing ? "" : `From snapshot ${at} on, backwards. `}
          <a href={routeTo(["snapshots"])}>Show the newest</a>
        </p>
      )}
      {found.error && <Failure error={found.error} again={found.again} />}
      {!found.data && !found.error && <Waiting lines={8} />}
      {missing && <Failure error={new Error(`There is no snapshot ${at}: there never was, or it has expired.`)} />}
      {found.data && !missing && (
        <SnapshotList
          snapshots={list}
          {...(at === null ? {} : { chosen: at })}
          more={(each) => (
            <>
              <a href={routeTo(["sql"], { at: each.snapshot_id })}>Query</a>
              {facts.role === "admin" && (at !== null || each.snapshot_id !== list[0]?.snapshot_id) && (
                <button type="button" class="link rollback" onClick={() => setWork(rollingBack(each.snapshot_id))}>
                  Roll back
                </button>
              )}
            </>
          )}
        />
      )}
      {!missing && found.data?.next != null && (
        <p class="centre">
          <button type="button" disabled={found.loading} onClick={() => setLimit(limit + 5 * PAGE)}>
            Show more
          </button>
        </p>
      )}
      {work && <JobDialog work={work} close={() => setWork(null)} done={found.again} />}
    </article>
  );
}

function rollingBack(at: number): Work {
  return {
    title: `Roll back to snapshot ${at}`,
    about: "All tables become what they were, in one new snapshot. Nothing of the history is lost, and this can be rolled back too.",
    kind: "rollback",
    given: { to: at },
    dry: true,
    verb: "Roll back",
  };
}
