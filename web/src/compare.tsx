/** A table at two of its snapshots: the columns and rows that differ. */

import { useEffect, useState } from "preact/hooks";

import { get, tablePath } from "./api.ts";
import { ago, count, parseTime } from "./format.ts";
import { told } from "./history.ts";
import { useLoad, useNow } from "./hooks.ts";
import "./pages.css";
import type { Snapshot } from "./types.ts";
import { Empty, Failure, Figure, Waiting } from "./ui.tsx";

interface Difference {
  from: number;
  to: number;
  key: string[];
  columns: ({ column: string; change: "added" | "dropped" | "altered"; type?: string | [string, string] } & Record<string, unknown>)[];
  counts: { added: number; changed: number; removed: number };
  rows: { change: "added" | "changed" | "removed"; before: Values | null; after: Values | null }[];
  next: number | null;
}
type Values = Record<string, string | null>;

const PAGE = 50;
const KINDS = { added: "insert", changed: "update", removed: "delete" } as const;

/** The snapshots come oldest first. `at` is the one that the slider shows. */
export function Compare({ name, snapshots, at }: { name: string; snapshots: readonly Snapshot[]; at: number | null }) {
  const shown = at ?? snapshots.at(-1)!.snapshot_id;
  const index = Math.max(0, snapshots.findLastIndex((each) => each.snapshot_id <= shown));
  const [chosen, setChosen] = useState<[number, number] | null>(null);
  useEffect(() => setChosen(null), [name, at]);
  const [from, to] = chosen ?? [snapshots[Math.max(0, index - 1)]!.snapshot_id, snapshots[index]!.snapshot_id];
  /** Keep the other end as it is now, which may be newer than what is drawn. */
  const choose = (id: number, other: 0 | 1) =>
    setChosen((before) => {
      const kept = (before ?? [from, to])[other];
      return [Math.min(id, kept), Math.max(id, kept)];
    });
  const [after, setAfter] = useState(0);
  useEffect(() => setAfter(0), [from, to]);
  const found = useLoad(async (signal) => (to === 0 && from === 0 ? null : get<Difference>(tablePath(name, "/diff"), { from, to, limit: PAGE, after }, signal)), [name, from, to, after]);
  const data = found.data?.from === from && found.data.to === to ? found.data : null;
  return (
    <>
      <div class="filters">
        <Pick label="From" snapshots={snapshots} chosen={from} choose={(id) => choose(id, 1)} />
        <Pick label="To" snapshots={snapshots} chosen={to} choose={(id) => choose(id, 0)} />
      </div>
      {found.error && <Failure error={found.error} again={found.again} />}
      {!data && !found.error && <Waiting lines={6} />}
      {data && (
        <div class="stacked difference" data-from={data.from} data-to={data.to}>
          <dl class="figures">
            <Figure label="Added" value={count(data.counts.added)} />
            <Figure label="Changed" value={count(data.counts.changed)} />
            <Figure label="Removed" value={count(data.counts.removed)} />
            <Figure label="Rows are known by" value={<span class="code">{data.key.length ? data.key.join(", ") : "row id"}</span>} />
          </dl>
          {data.columns.length > 0 && (
            <ul class="column-changes" aria-label="Columns that differ">
              {data.columns.map((each) => (
                <li key={each.column}>
                  <span class={`kind ${each.change === "added" ? "insert" : each.change === "dropped" ? "delete" : "update"}`}>column {each.change}</span> <b class="code">{each.column}</b>{" "}
                  <span class="dim">{Array.isArray(each.type) ? each.type.join(" → ") : each.type}</span>
                </li>
              ))}
            </ul>
          )}
          {data.rows.length === 0 ? <Empty title={data.columns.length ? "All rows are the same." : "Both are the same."} /> : <Rows difference={data} />}
          {(after > 0 || data.next !== null) && (
            <div class="pager">
              <button type="button" disabled={after === 0} onClick={() => setAfter(Math.max(0, after - PAGE))}>
                Before
              </button>
              <span class="dim">
                rows {count(after + 1)} to {count(after + data.rows.length)}
              </span>
              <button type="button" disabled={data.next === null} onClick={() => setAfter(data.next!)}>
                Next
              </button>
            </div>
          )}
        </div>
      )}
    </>
  );
}

function Pick({ label, snapshots, chosen, choose }: { label: string; snapshots: readonly Snapshot[]; chosen: number; choose: (id: number) => void }) {
  const now = useNow(60_000);
  return (
    <label>
      {label}
      <select name={label.toLowerCase()} onChange={(event) => choose(Number(event.currentTarget.value))}>
        {snapshots.toReversed().map((each) => (
          <option key={each.snapshot_id} value={each.snapshot_id} selected={each.snapshot_id === chosen}>
            #{each.snapshot_id} · {ago(parseTime(each.snapshot_time), now)} · {told(each).slice(0, 40)}
          </option>
        ))}
      </select>
    </label>
  );
}

function Rows({ difference }: { difference: Difference }) {
  const columns = Object.keys(difference.rows[0]!.after ?? difference.rows[0]!.before ?? {});
  const cell = (values: Values | null, name: string) => {
    const value = values?.[name];
    return value === null || value === undefined ? <span class="dim">NULL</span> : value;
  };
  return (
    <div class="framed scroll" tabIndex={0} role="region" aria-label="Rows that differ">
      <table class="list rows-differ">
        <thead>
          <tr>
            <th>Change</th>
            {columns.map((name) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {difference.rows.map((row, index) => (
            <tr key={index} class={row.change}>
              <th scope="row">
                <span class={`kind ${KINDS[row.change]}`}>{row.change}</span>
              </th>
              {columns.map((name) => {
                const differs = row.change === "changed" && row.before?.[name] !== row.after?.[name];
                return (
                  <td key={name}>
                    {differs ? (
                      <>
                        <del>{cell(row.before, name)}</del> <ins>{cell(row.after, name)}</ins>
                      </>
                    ) : (
                      cell(row.after ?? row.before, name)
                    )}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
