/** The history of a table as a line of points, and a slider that goes through it. */

import { ago, moment, parseTime } from "./format.ts";
import { useNow } from "./hooks.ts";
import { kindOf, KINDS, told } from "./history.ts";
import type { Tag } from "./tags.tsx";
import type { Snapshot } from "./types.ts";

const MOST_POINTS = 400;

/** The snapshots come oldest first; `at` is the chosen one. */
export function Timeline({ snapshots, at, tags, choose }: { snapshots: readonly Snapshot[]; at: number | null; tags: readonly Tag[]; choose: (at: number | null) => void }) {
  const now = useNow();
  const last = snapshots.length - 1;
  const found = at === null ? last : snapshots.findLastIndex((each) => each.snapshot_id <= at);
  const index = Math.max(0, found);
  const shown = snapshots[index];
  if (shown === undefined) return null;
  const pick = (next: number) => choose(next >= last ? null : snapshots[Math.max(0, next)]!.snapshot_id);
  const every = Math.ceil(snapshots.length / MOST_POINTS);
  return (
    <section class="timeline" aria-label="History of the table">
      <div class="line">
        <div class="points" aria-hidden="true">
          {snapshots.map((each, number) =>
            number % every && number !== last ? null : (
              <i key={each.snapshot_id} class={`${kindOf(each.changes)}${number === index ? " on" : ""}`} style={{ left: `${last ? (number / last) * 100 : 100}%` }} />
            ),
          )}
        </div>
        <input
          type="range"
          min={0}
          max={Math.max(last, 0)}
          step={1}
          value={index}
          disabled={last < 1}
          aria-label="Snapshot"
          aria-valuetext={`snapshot ${shown.snapshot_id}, ${told(shown)}`}
          onInput={(event) => pick(Number(event.currentTarget.value))}
        />
      </div>
      <div class="told">
        <span class={`kind ${kindOf(shown.changes)}`}>{KINDS[kindOf(shown.changes)]}</span>
        <strong>#{shown.snapshot_id}</strong>
        {tags
          .filter((each) => each.snapshot === shown.snapshot_id)
          .map((each) => (
            <span key={each.tag} class="tag named">
              {each.tag}
            </span>
          ))}
        <span class="what">{told(shown)}</span>
        <span class="dim">
          {shown.author ? `${shown.author}, ` : ""}
          <time dateTime={shown.snapshot_time} title={moment(parseTime(shown.snapshot_time))}>
            {ago(parseTime(shown.snapshot_time), now)}
          </time>
        </span>
        <span class="steps">
          <button type="button" class="quiet" disabled={index === 0} onClick={() => pick(index - 1)}>
            Earlier
          </button>
          <button type="button" class="quiet" disabled={index === last} onClick={() => pick(index + 1)}>
            Later
          </button>
          <button type="button" class="quiet newest" disabled={at === null} onClick={() => choose(null)}>
            Newest
          </button>
        </span>
      </div>
    </section>
  );
}
