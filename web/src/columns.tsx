/** The columns of a table, beside what is in them. */

import { useState } from "preact/hooks";

import { runSql } from "./api.ts";
import { count, quotedTable } from "./format.ts";
import { compareColumns, type Compared } from "./history.ts";
import { useLoad } from "./hooks.ts";
import type { Column, TableFacts } from "./types.ts";
import { Failure } from "./ui.tsx";

/** Rows up to which statistics are computed without being asked for: they read the whole table. */
const AT_ONCE = 2_000_000;

export interface Statistics {
  distinct: number;
  nulls: number;
  min: string | null;
  max: string | null;
  quartiles: (string | null)[];
}

async function summarize(name: string, at: number, signal: AbortSignal): Promise<Map<string, Statistics>> {
  const rows = await runSql({ sql: `SUMMARIZE ${quotedTable(name)}`, version: at }, { signal });
  const text = (value: unknown) => (value === null || value === undefined ? null : String(value));
  const found = new Map<string, Statistics>();
  for (let index = 0; index < rows.length; index += 1) {
    const row = rows.row(index);
    found.set(String(row["column_name"]), {
      distinct: Number(row["approx_unique"]),
      nulls: Number(row["null_percentage"]),
      min: text(row["min"]),
      max: text(row["max"]),
      quartiles: [text(row["q25"]), text(row["q50"]), text(row["q75"])],
    });
  }
  return found;
}

const LABELS: Record<Compared["state"], string> = { same: "", changed: "changed since", later: "added later", dropped: "dropped since" };

export function Columns({ name, facts, newest }: { name: string; facts: TableFacts; newest: readonly Column[] }) {
  const [wanted, setWanted] = useState(facts.rows <= AT_ONCE);
  const statistics = useLoad(async (signal) => (wanted ? summarize(name, facts.snapshot, signal) : null), [name, facts.snapshot, wanted]);
  const compared = compareColumns(facts.columns, newest);
  const described = compared.some(({ column }) => column.comment);
  return (
    <>
      {statistics.error && <Failure error={statistics.error} again={statistics.again} />}
      {!wanted && (
        <p class="offer">
          Statistics read the whole table.{" "}
          <button type="button" onClick={() => setWanted(true)}>
            Compute them for {count(facts.rows)} rows
          </button>
        </p>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label="Columns">
        <table class="facts columns">
          <thead>
            <tr>
              <th scope="col">Column</th>
              <th scope="col">Type</th>
              {described && <th scope="col">Comment</th>}
              <th scope="col" class="number distinct">Distinct</th>
              <th scope="col" class="filled">Filled</th>
              <th scope="col" class="spans">Range</th>
            </tr>
          </thead>
          <tbody>
            {compared.map(({ column, state, now }) => {
              const found = state === "later" ? undefined : statistics.data?.get(column.name);
              return (
                <tr key={`${state}-${column.name}`} class={state === "later" ? "ghost" : undefined}>
                  <th scope="row">
                    <span class="name">{column.name}</span>
                    {column.primary_key && <span class="tag">key</span>}
                    {!column.nullable && <span class="tag">not null</span>}
                    {state !== "same" && <span class={`tag ${state}`}>{LABELS[state]}</span>}
                  </th>
                  <td class="code">
                    {column.type}
                    {state === "changed" && now && now.type !== column.type && <span class="dim"> → {now.type}</span>}
                  </td>
                  {described && <td class="comment">{column.comment}</td>}
                  <td class="number">{found ? found.distinct ? `≈ ${count(Math.min(found.distinct, facts.rows))}` : "0" : ""}</td>
                  <td>{found && <Share nulls={found.nulls} rows={facts.rows} />}</td>
                  <td>{found && <Range found={found} />}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </>
  );
}

function Share({ nulls, rows }: { nulls: number; rows: number }) {
  const filled = rows ? 100 - nulls : 0;
  const said = `${filled === 100 || filled === 0 ? filled : filled.toFixed(1)} %`;
  return (
    <span class="share" title={`${said} of the rows have a value`}>
      <i>
        <b style={{ width: `${filled}%` }} />
      </i>
      {said}
    </span>
  );
}

function place(text: string | null): number {
  if (text === null) return Number.NaN;
  const number = Number(text);
  return Number.isNaN(number) ? Date.parse(text.replace(" ", "T")) : number;
}

/** The least and the greatest value, and between them where half of the rows are. */
function Range({ found }: { found: Statistics }) {
  const [low, high] = [place(found.min), place(found.max)];
  const [first, middle, third] = found.quartiles.map(place) as [number, number, number];
  const at = (value: number) => `${((value - low) / (high - low)) * 100}%`;
  const drawn = [low, high, first, middle, third].every(Number.isFinite) && high > low;
  if (found.min === null) return <span class="dim">no values</span>;
  return (
    <span class="range" title={drawn ? `half of the values are between ${found.quartiles[0]} and ${found.quartiles[2]}` : undefined}>
      <span class="end">{found.min}</span>
      {drawn ? (
        <i>
          <b style={{ left: at(first), width: `max(2px, ${((third - first) / (high - low)) * 100}%)` }} />
          <u style={{ left: at(middle) }} />
        </i>
      ) : (
        found.min !== found.max && <span class="dim">…</span>
      )}
      {found.min !== found.max && <span class="end">{found.max}</span>}
    </span>
  );
}
