/** The audit log: what users have read and changed, the newest first. */

import { useState } from "preact/hooks";

import "./access.css";
import { List, More } from "./access.tsx";
import { get } from "./api.ts";
import { ago, moment, parseTime, referTo } from "./format.ts";
import { replaceRoute, useLoad, useNow } from "./hooks.ts";
import { useListing } from "./listing.tsx";
import "./pages.css";
import { routeTo, type Route } from "./route.ts";
import { instant, tableRead } from "./said.ts";
import { Empty, Failure, Icon, Waiting } from "./ui.tsx";

interface Entry {
  time: string;
  principal: string;
  kind: string;
  statement_hash: string | null;
  tables_read: string[];
  tables_changed: string[];
  snapshot_id: number | null;
  outcome: string;
}

const PAGE = 100;
const FIELDS = ["principal", "kind", "table", "outcome", "since", "until"] as const;
type Filters = Record<(typeof FIELDS)[number], string>;

export function AuditPage({ route }: { route: Route }) {
  const now = useNow();
  const filters = Object.fromEntries(FIELDS.map((each) => [each, route.query[each] ?? ""])) as Filters;
  const asked = { ...filters, since: instant(filters.since), until: instant(filters.until) };
  const query = Object.fromEntries(Object.entries(asked).map(([name, value]) => [name, value || null]));
  const found = useListing<Entry>("audit", "records", { ...query, limit: PAGE });
  const schemas = useLoad(async (signal) => (await get<{ schemas: string[] }>("schemas", {}, signal)).schemas, []);
  const filtered = FIELDS.some((each) => filters[each] !== "");
  const table = (listed: string, at: number | null) => (
    <a key={listed} class="touched" href={routeTo(["tables", referTo(listed, schemas.data ?? []).name], { at })}>
      {listed}
    </a>
  );
  return (
    <article class="audit">
      <header class="title">
        <h1>Audit</h1>
        <p class="dim">What the users of the lake have read and changed. Administrators are not in it, and values never are: the hash tells whether two statements are the same.</p>
      </header>
      <Form key={JSON.stringify(filters)} filters={filters} again={found.again} />
      {found.error && <Failure error={found.error} again={found.again} />}
      {!found.entries && !found.error && <Waiting lines={6} />}
      {found.entries && found.facts["on"] === false && (
        <div class="notice">
          <Icon name="warning" />
          <div>
            The lake records nothing now. The setting <code>access_audit</code> turns it on: <code>QUACKLAKE_ACCESS_AUDIT=true quacklake serve --users</code>.
          </div>
        </div>
      )}
      {found.entries?.length === 0 && <Empty title={filtered ? "No record matches." : "There are no records yet."}>{filtered ? <a href={routeTo(["audit"])}>Show all</a> : "What users do shows here, as soon as the log is on and they do something."}</Empty>}
      {!!found.entries?.length && (
        <List label="Records" heads={["Time", "User", "Did", "Read", "Changed", "Snapshot", "Outcome"]}>
          {found.entries.map((each, index) => {
            const then = parseTime(each.time);
            return (
              <tr key={index}>
                <td>
                  <time title={moment(then)}>{ago(then, now)}</time>
                </td>
                <th scope="row">{each.principal}</th>
                <td>
                  {each.kind}
                  {each.statement_hash && (
                    <div class="dim hash" title={`SHA-256 of the statement: ${each.statement_hash}`}>
                      {each.statement_hash.slice(0, 10)}…
                    </div>
                  )}
                </td>
                <td class="wrap">{each.tables_read.length ? each.tables_read.map((text) => <div key={text}>{table(tableRead(text), each.snapshot_id)} <span class="dim small">{text.slice(tableRead(text).length)}</span></div>) : <span class="dim">–</span>}</td>
                <td class="wrap">{each.tables_changed.length ? each.tables_changed.map((text) => <div key={text}>{table(text, each.snapshot_id)}</div>) : <span class="dim">–</span>}</td>
                <td>{each.snapshot_id === null ? <span class="dim">–</span> : <a href={routeTo(["snapshots"], { at: each.snapshot_id })}>#{each.snapshot_id}</a>}</td>
                <td>{each.outcome === "ok" ? <span class="stand good">ok</span> : <span class="stand bad">{each.outcome}</span>}</td>
              </tr>
            );
          })}
        </List>
      )}
      <More found={found} />
    </article>
  );
}

function Form({ filters, again }: { filters: Filters; again: () => void }) {
  const [typed, setTyped] = useState(filters);
  const field = (name: keyof Filters, label: string, type: string, placeholder = "") => (
    <label>
      {label}
      <input type={type} name={name} maxLength={300} spellcheck={false} placeholder={placeholder} value={typed[name]} onInput={(event) => setTyped({ ...typed, [name]: event.currentTarget.value })} />
    </label>
  );
  return (
    <form
      class="filters"
      onSubmit={(event) => {
        event.preventDefault();
        const next = { ...typed, principal: typed.principal.trim().toLowerCase(), kind: typed.kind.trim().toUpperCase(), table: typed.table.trim() };
        if (JSON.stringify(next) === JSON.stringify(filters)) again();
        else replaceRoute(routeTo(["audit"], next));
      }}
    >
      {field("principal", "User", "text", "ann")}
      {field("kind", "Did", "text", "SELECT")}
      {field("table", "Table", "text", "main.orders")}
      <label>
        Outcome
        <select name="outcome" value={typed.outcome} onChange={(event) => setTyped({ ...typed, outcome: event.currentTarget.value })}>
          <option value="">any</option>
          <option value="ok">ok</option>
          <option value="failed">failed or refused</option>
        </select>
      </label>
      {field("since", "From", "datetime-local")}
      {field("until", "To", "datetime-local")}
      <button type="submit" class="show primary">
        Show
      </button>
    </form>
  );
}
