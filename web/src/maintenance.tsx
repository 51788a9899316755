/** The care of the lake: what is due and why, each kind of work with its options, and the options of the lake. */

import { useState } from "preact/hooks";

import "./access.css";
import { List } from "./access.tsx";
import { get } from "./api.ts";
import { Due } from "./due.tsx";
import { bytes, count, counted } from "./format.ts";
import { useLoad, useNewest } from "./hooks.ts";
import { JobDialog, type Work } from "./jobs.tsx";
import { loadKnown } from "./names.ts";
import "./pages.css";
import { routeTo } from "./route.ts";
import type { Care } from "./types.ts";
import { Card, Empty, Failure, Figure, Waiting } from "./ui.tsx";

interface Option {
  option: string;
  value: string | null;
  set: boolean;
  own: number;
  help: string;
}

type CareTable = Care["tables"][number];
type Start = (work: Work) => void;
const UNITS = ["hours", "days", "weeks"] as const;

export function MaintenancePage() {
  const newest = useNewest(3000);
  const care = useLoad((signal) => get<Care & { more_tables: number }>("care", {}, signal), [], newest);
  const options = useLoad((signal) => get<{ options: Option[] }>("options", {}, signal), []);
  const [work, setWork] = useState<Work | null>(null);
  const data = care.data;
  const sum = (of: (table: CareTable) => number) => (data ? count(data.tables.reduce((total, table) => total + of(table), 0)) : "–");
  return (
    <article class="access maintenance">
      <header class="title">
        <h1>Maintenance</h1>
        <p class="dim">Readers see the same rows before and after. Each kind of work shows first what it would do.</p>
      </header>
      {care.error && <Failure error={care.error} again={care.again} />}
      <dl class="figures">
        <Figure label="Due" value={data ? count(data.due.length) : "–"} />
        <Figure label="Small files" value={sum((table) => table.small_files)} />
        <Figure label="Files with many deletes" value={sum((table) => table.files_with_many_deletes)} />
        <Figure label="Rows in the catalog" value={sum((table) => table.inlined_rows)} />
        <Figure label="Files to remove" value={data ? count(data.removable_files) : "–"} />
      </dl>
      <div class="stacked">
        <Card title="What is due" aside={data && data.due.length > 0 && <Maintain care={data} start={setWork} />}>
          {!data && !care.error && <Waiting lines={3} />}
          {data && <Due care={data} />}
        </Card>
        <div class="works">
          <Expire start={setWork} />
          <Aged
            title="Clean up"
            name="cleanup"
            label="Unused for"
            about="Removes files from the store that no snapshot needs any more, after expiry and compaction."
            lowest={1}
            usual={2}
            start={(age) => setWork({ title: "Clean up", about: `Files that no snapshot has needed for ${age} are removed from the store. Reads that began before may still need younger ones.`, kind: "cleanup", given: { older_than: age }, dry: true, verb: "Clean up" })}
          />
          <Aged
            title="Orphaned files"
            name="orphans"
            label="Older than"
            about="Removes files below the data path that the catalog does not know: crashes and failed commits leave them."
            lowest={1}
            usual={7}
            start={(age) => setWork({ title: "Remove orphaned files", about: `Files that the catalog does not know and that were written more than ${age} ago are removed. A transaction that is open for longer would lose its files.`, kind: "orphans", given: { older_than: age }, dry: true, verb: "Remove" })}
          />
          <Verify start={setWork} />
        </div>
        {data && <Tables tables={data.tables} more={data.more_tables} start={setWork} />}
        <Card title="Options of the lake" aside={<span class="dim">every client obeys them</span>}>
          {options.error && <Failure error={options.error} again={options.again} />}
          {!options.data && !options.error && <Waiting lines={6} />}
          {options.data && <Options options={options.data.options} />}
        </Card>
      </div>
      {work && <JobDialog work={work} close={() => setWork(null)} done={care.again} />}
    </article>
  );
}

function Maintain({ care, start }: { care: Care; start: Start }) {
  const plan = care.due.map((each) => ({ [each.job.replaceAll("_", " ")]: [each.table, each.reason].filter(Boolean).join(": ") }));
  return (
    <button type="button" class="maintain" onClick={() => start({ title: "Do what is due", about: "All of this is done, one after the other, unless another process is at it.", kind: "maintain", given: {}, dry: false, plan, verb: "Maintain" })}>
      Do what is due…
    </button>
  );
}

function Age({ label, name, lowest, number, unit, change }: { label: string; name: string; lowest: number; number: number; unit: string; change: (number: number, unit: string) => void }) {
  return (
    <span class="age">
      <label>
        {label}
        <input type="number" name={name} min={lowest} max={10_000} step={1} required value={number} onInput={(event) => change(event.currentTarget.valueAsNumber, unit)} />
      </label>
      <select aria-label={`Unit of ${label.toLowerCase()}`} name={`${name}-unit`} value={unit} onChange={(event) => change(number, event.currentTarget.value)}>
        {UNITS.map((each) => (
          <option key={each}>{each}</option>
        ))}
      </select>
    </span>
  );
}

/** Return a span of time as the service takes it: 1 day, 2 weeks. */
function lasting([number, unit]: [number, string]): string {
  return `${number} ${number === 1 ? unit.slice(0, -1) : unit}`;
}

function Expire({ start }: { start: Start }) {
  const [age, setAge] = useState<[number, string]>([7, "days"]);
  const [keep, setKeep] = useState(10);
  return (
    <Card title="Expire snapshots">
      <form
        class="fields"
        onSubmit={(event) => {
          event.preventDefault();
          start({ title: "Expire snapshots", about: `Snapshots older than ${lasting(age)} go, except the last ${keep} and those with a name, and so does what only they can see. They cannot be read any more.`, kind: "expire", given: { older_than: lasting(age), keep_last: keep }, dry: true, verb: "Expire" });
        }}
      >
        <p class="dim">Removes old snapshots, and what only they can see.</p>
        <Age label="Older than" name="expire-age" lowest={1} number={age[0]} unit={age[1]} change={(...next) => setAge(next)} />
        <label>
          Keep at least the last
          <input type="number" name="keep" min={1} max={1_000_000} step={1} required value={keep} onInput={(event) => setKeep(event.currentTarget.valueAsNumber)} />
        </label>
        <button type="submit" class="expire">
          Look…
        </button>
      </form>
    </Card>
  );
}

function Aged({ title, name, label, about, lowest, usual, start }: { title: string; name: string; label: string; about: string; lowest: number; usual: number; start: (age: string) => void }) {
  const [age, setAge] = useState<[number, string]>([usual, "days"]);
  return (
    <Card title={title}>
      <form
        class="fields"
        onSubmit={(event) => {
          event.preventDefault();
          start(lasting(age));
        }}
      >
        <p class="dim">{about}</p>
        <Age label={label} name={`${name}-age`} lowest={lowest} number={age[0]} unit={age[1]} change={(...next) => setAge(next)} />
        <button type="submit" class={name}>
          Look…
        </button>
      </form>
    </Card>
  );
}

function Verify({ start }: { start: Start }) {
  const [deep, setDeep] = useState(false);
  return (
    <Card title="Verify">
      <form
        class="fields"
        onSubmit={(event) => {
          event.preventDefault();
          start({ title: "Verify the lake", about: "Catalog, files and footers are held against every rule of the format. Nothing is changed.", kind: "verify", given: { deep }, dry: false, plan: { reads: deep ? "the catalog, and every row" : "the catalog, and the footers of files" }, verb: "Verify" });
        }}
      >
        <p class="dim">Checks the lake against every rule of the format.</p>
        <label class="inline">
          <input type="checkbox" name="deep" checked={deep} onChange={(event) => setDeep(event.currentTarget.checked)} />
          Read all rows, too
        </label>
        <button type="submit" class="verify">
          Verify…
        </button>
      </form>
    </Card>
  );
}

const ON_TABLES: readonly { kind: string; label: string; about: string; of: (table: CareTable) => number; what: string }[] = [
  { kind: "flush", label: "Flush…", about: "Rows that are in the catalog are written into files.", of: (table) => table.inlined_rows, what: "rows in the catalog" },
  { kind: "merge", label: "Merge…", about: "Small files become few large ones.", of: (table) => table.small_files, what: "small files" },
  { kind: "rewrite", label: "Rewrite…", about: "Files with many deleted rows are written again without them.", of: (table) => table.files_with_many_deletes, what: "files with many deletes" },
];

function Tables({ tables, more, start }: { tables: readonly CareTable[]; more: number; start: Start }) {
  const known = useLoad(loadKnown, []);
  const name = (listed: string) => known.data?.tables.find((each) => `${each.schema}.${each.own}` === listed)?.name ?? listed;
  if (!tables.length) return <Empty title="No table has rows yet." />;
  return (
    <Card title="Tables" aside={more > 0 && <span class="dim">and {counted(more, "more table", "more tables")}</span>}>
      <List label="Tables" heads={["Table", "Size#", "Files#", "Small#", "Many deletes#", "In the catalog#", "Do"]}>
        {tables.map((table) => (
          <tr key={table.table}>
            <th scope="row" class="wrap">
              <a href={routeTo(["tables", name(table.table)])}>{table.table}</a>
            </th>
            <td class="number">{bytes(table.bytes)}</td>
            {[table.files, table.small_files, table.files_with_many_deletes, table.inlined_rows].map((each, index) => (
              <td key={index} class="number">
                {count(each)}
              </td>
            ))}
            <td>
              <span class="row-buttons">
                {ON_TABLES.map((each) => (
                  <button
                    key={each.kind}
                    type="button"
                    class={each.kind}
                    disabled={each.of(table) === 0}
                    aria-label={`${each.label.slice(0, -1)} ${table.table}`}
                    onClick={() => start({ title: `${each.label.slice(0, -1)} ${table.table}`, about: `${each.about} Readers see the same rows.`, kind: each.kind, given: { table: name(table.table) }, dry: false, plan: { [each.what]: each.of(table) }, verb: each.label.slice(0, -1) })}
                  >
                    {each.label}
                  </button>
                ))}
              </span>
            </td>
          </tr>
        ))}
      </List>
    </Card>
  );
}

function Options({ options }: { options: readonly Option[] }) {
  return (
    <>
      <List label="Options of the lake" heads={["Option", "Value", "Meaning"]}>
        {options.map((each) => (
          <tr key={each.option}>
            <th scope="row">
              <code>{each.option}</code>
            </th>
            <td>
              {each.value === null ? <span class="dim">not set</span> : each.value} {each.set && <span class="tag">set</span>}
              {each.own > 0 && <div class="dim small">{counted(each.own, "schema or table has its own", "schemas and tables have their own")}</div>}
            </td>
            <td class="wrap">{each.help}</td>
          </tr>
        ))}
      </List>
      <p class="dim under">
        <a href={routeTo(["sql"], { q: "CALL set_option('expire_older_than', '30 days')" })}>Set one in SQL</a>
      </p>
    </>
  );
}
