/** The tenants of a shared lake, for those who run it. */

import { useState } from "preact/hooks";

import "./access.css";
import { TokenShown } from "./access-forms.tsx";
import { List, More } from "./access.tsx";
import { ask, get } from "./api.ts";
import { ago, bytes, count, counted, moment, parseTime } from "./format.ts";
import { replaceRoute, useLoad, useNow } from "./hooks.ts";
import { Confirm, FormDialog, Search, useListing, type Question } from "./listing.tsx";
import "./pages.css";
import { routeTo, type Route } from "./route.ts";
import { Dialog, Empty, Failure, Icon, Waiting } from "./ui.tsx";

interface Tenant {
  name: string;
  created: string;
  snapshots: number;
  tables: number;
  files: number;
  rows: number;
  bytes: number;
}

type Limits = Record<(typeof LIMITS)[number][0], number | null>;

const PAGE = 100;
const NAME = "[A-Za-z0-9_][A-Za-z0-9_.\\-]{0,62}";
const LIMITS = [
  ["commits_per_second", "Commits a second"],
  ["concurrent_scans", "Scans at once, in each process"],
  ["bytes", "Bytes of data"],
  ["tables", "Tables"],
  ["snapshots", "Snapshots"],
] as const;

const path = (name: string, more = "") => `tenants/${encodeURIComponent(name)}${more}`;
const isName = (text: string) => new RegExp(`^${NAME}$`).test(text);

async function post<T>(to: string, body: unknown): Promise<T> {
  return (await (await ask(to, { method: "POST", body })).json()) as T;
}

type Asked = { kind: "new" } | { kind: "admin" | "limits" | "rename"; tenant: string } | { kind: "drop"; question: Question };

export function TenantsPage({ route }: { route: Route }) {
  const now = useNow();
  const prefix = route.query["prefix"] ?? "";
  const found = useListing<Tenant>("tenants", "tenants", { prefix, limit: PAGE });
  const [asked, setAsked] = useState<Asked | null>(null);
  const close = () => setAsked(null);
  const done = () => (close(), found.again());
  return (
    <article class="access tenants">
      <header class="title">
        <h1>Tenants</h1>
        <p class="dim">Each has a lake of its own. You manage them, and see none of their rows.</p>
      </header>
      <div class="filters">
        <Search label="Names that begin with" value={prefix} change={(value) => replaceRoute(routeTo(["tenants"], { prefix: value || null }))} />
        <button type="button" class="primary" onClick={() => setAsked({ kind: "new" })}>
          New tenant
        </button>
      </div>
      {found.error && <Failure error={found.error} again={found.again} />}
      {!found.entries && !found.error && <Waiting lines={6} />}
      {found.entries?.length === 0 && <Empty title={prefix ? "No name begins like this." : "There are no tenants yet."}>{prefix ? <a href={routeTo(["tenants"])}>Show all</a> : "Create one, then make its first administrator."}</Empty>}
      {!!found.entries?.length && (
        <List label="Tenants" heads={["Name", "Size", "Rows", "Tables", "Snapshots", "Created", ""]}>
          {found.entries.map((each) => (
            <tr key={each.name}>
              <th scope="row">{each.name}</th>
              <td>
                {bytes(each.bytes)} <span class="dim small">in {counted(each.files, "file")}</span>
              </td>
              <td>{count(each.rows)}</td>
              <td>{count(each.tables)}</td>
              <td>{count(each.snapshots)}</td>
              <td>
                <time title={moment(parseTime(each.created))}>{ago(parseTime(each.created), now)}</time>
              </td>
              <td>
                <span class="row-buttons">
                  <button type="button" aria-label={`Make an administrator of ${each.name}`} onClick={() => setAsked({ kind: "admin", tenant: each.name })}>
                    <Icon name="key" /> Administrator
                  </button>
                  <button type="button" aria-label={`Limits of ${each.name}`} onClick={() => setAsked({ kind: "limits", tenant: each.name })}>
                    Limits
                  </button>
                  <button type="button" aria-label={`Rename ${each.name}`} onClick={() => setAsked({ kind: "rename", tenant: each.name })}>
                    Rename
                  </button>
                  <button type="button" aria-label={`Drop ${each.name}`} onClick={() => setAsked({ kind: "drop", question: dropping(each) })}>
                    Drop
                  </button>
                </span>
              </td>
            </tr>
          ))}
        </List>
      )}
      <More found={found} />
      {asked?.kind === "new" && <NewTenant close={close} done={found.again} />}
      {asked?.kind === "admin" && <NewAdministrator tenant={asked.tenant} close={close} />}
      {asked?.kind === "limits" && <LimitsDialog tenant={asked.tenant} close={close} done={done} />}
      {asked?.kind === "rename" && <Rename tenant={asked.tenant} close={close} done={done} />}
      {asked?.kind === "drop" && <Confirm question={asked.question} close={close} done={found.again} />}
    </article>
  );
}

function dropping(tenant: Tenant): Question {
  return {
    title: `Drop ${tenant.name}`,
    about: (
      <p>
        Nobody can enter <strong>{tenant.name}</strong> from now on, with its {count(tenant.rows)} rows. Its files stay until <code>quacklake tenant purge</code> removes them.
      </p>
    ),
    verb: "Drop tenant",
    grave: true,
    act: () => ask(path(tenant.name), { method: "DELETE" }),
  };
}

function Name({ label, value, change }: { label: string; value: string; change: (value: string) => void }) {
  return (
    <label>
      {label}
      <input name="name" autocomplete="off" spellcheck={false} maxLength={63} required value={value} onInput={(event) => change(event.currentTarget.value.trim())} />
    </label>
  );
}

function NewTenant({ close, done }: { close: () => void; done: () => void }) {
  const [name, setName] = useState("");
  const [made, setMade] = useState(false);
  if (made) return <NewAdministrator tenant={name} close={close} />;
  return (
    <FormDialog title="New tenant" verb="Create tenant" ready={isName(name)} happens={`${name} gets a lake of its own, which nobody may enter until it has an administrator: that comes next.`} act={() => post("tenants", { name })} close={close} done={() => (done(), setMade(true))}>
      <Name label="Name" value={name} change={setName} />
    </FormDialog>
  );
}

function NewAdministrator({ tenant, close }: { tenant: string; close: () => void }) {
  const [name, setName] = useState("");
  const [token, setToken] = useState<string | null>(null);
  if (token !== null) return <TokenShown user={`${name.toLowerCase()} in ${tenant}`} token={token} close={() => (setToken(null), close())} />;
  const act = async () => setToken((await post<{ token: string }>(path(tenant, "/administrators"), { name, expires_in: "90 days" })).token);
  return (
    <FormDialog title={`An administrator of ${tenant}`} verb="Create user and token" ready={name !== ""} happens={`${name.toLowerCase()} may do everything in ${tenant}, and comes in by a new token for 90 days, which is shown once.`} act={act} close={close} done={() => {}}>
      <Name label="Name of the user" value={name} change={setName} />
    </FormDialog>
  );
}

function Rename({ tenant, close, done }: { tenant: string; close: () => void; done: () => void }) {
  const [name, setName] = useState(tenant);
  return (
    <FormDialog title={`Rename ${tenant}`} verb="Rename" ready={isName(name) && name !== tenant} happens={`${tenant} is called ${name} from now on. Its files, users and tokens stay; addresses with the old name do not.`} act={() => post(path(tenant, "/rename"), { name })} close={close} done={done}>
      <Name label="New name" value={name} change={setName} />
    </FormDialog>
  );
}

function LimitsDialog({ tenant, close, done }: { tenant: string; close: () => void; done: () => void }) {
  const found = useLoad(async (signal) => (await get<{ limits: Limits }>(path(tenant), {}, signal)).limits, [tenant]);
  if (found.error)
    return (
      <Dialog title={`Limits of ${tenant}`} close={close}>
        <Failure error={found.error} again={found.again} />
      </Dialog>
    );
  if (!found.data) return null;
  return <LimitsForm tenant={tenant} limits={found.data} close={close} done={done} />;
}

function LimitsForm({ tenant, limits, close, done }: { tenant: string; limits: Limits; close: () => void; done: () => void }) {
  const [typed, setTyped] = useState(() => Object.fromEntries(LIMITS.map(([id]) => [id, limits[id] === null ? "" : String(limits[id])])) as Record<keyof Limits, string>);
  const changed = LIMITS.filter(([id]) => typed[id] !== (limits[id] === null ? "" : String(limits[id])));
  const said = changed.map(([id, label]) => `${label.toLowerCase()}: ${typed[id] === "" ? "any number" : `at most ${typed[id]}`}`).join("; ");
  const act = () => post(path(tenant, "/limits"), Object.fromEntries(changed.map(([id]) => [id, typed[id] === "" ? null : Number(typed[id])])));
  return (
    <FormDialog title={`Limits of ${tenant}`} verb="Set limits" ready={changed.length > 0 && changed.every(([id]) => typed[id] === "" || Number(typed[id]) > 0)} happens={`From the next commit or scan on, ${said}.`} act={act} close={close} done={done}>
      {LIMITS.map(([id, label]) => (
        <label key={id}>
          {label}
          <input type="number" name={id} min={id === "commits_per_second" ? "0.001" : "1"} step="any" placeholder="any number" value={typed[id]} onInput={(event) => setTyped({ ...typed, [id]: event.currentTarget.value })} />
        </label>
      ))}
    </FormDialog>
  );
}
