/** Forms of the page of access. Each says what will happen before it happens. */

import { useEffect, useState } from "preact/hooks";

import { ask, get, tablePath } from "./api.ts";
import { useLoad } from "./hooks.ts";
import { FormDialog } from "./listing.tsx";
import { loadKnown } from "./names.ts";
import { grantBody, grantSaid, listed, privilegesOf, ruleSaid, type WantedGrant } from "./said.ts";
import type { TableFacts } from "./types.ts";
import { Dialog, Icon } from "./ui.tsx";

interface Asks {
  close: () => void;
  done: () => void;
}

const LASTS: readonly [string, string][] = [
  ["1 day", "1 day"],
  ["30 days", "30 days"],
  ["90 days", "90 days"],
  ["365 days", "a year"],
  ["", "no end"],
];
const NAME = "[A-Za-z0-9][A-Za-z0-9_.@:\\|+\\-]{0,126}";
const NAME_HELP = "Letters and digits of ASCII, and _ . @ : | + - after the first";

async function post(path: string, body: unknown): Promise<Response> {
  return ask(path, { method: "POST", body });
}

function isName(text: string): boolean {
  return new RegExp(`^${NAME}$`).test(text);
}

/** Load the names of users and roles that something can be given to. */
async function loadGrantees(signal: AbortSignal): Promise<{ users: string[]; roles: string[] }> {
  const [{ users }, { roles }] = await Promise.all([get<{ users: { name: string }[] }>("access/users", {}, signal), get<{ roles: { name: string }[] }>("access/roles", {}, signal)]);
  return { users: users.map((each) => each.name), roles: roles.map((each) => each.name) };
}

/** A token, in sight until this is closed, and nowhere else. */
export function TokenShown({ user, token, close }: { user: string; token: string; close: () => void }) {
  const [copied, setCopied] = useState("");
  const copy = () => {
    const copying = navigator.clipboard ? navigator.clipboard.writeText(token) : Promise.reject(new Error("no clipboard"));
    copying.then(
      () => setCopied("Copied."),
      () => {
        getSelection()?.selectAllChildren(document.querySelector(".secret")!);
        setCopied("Your browser does not let the page copy. The token is selected: copy it by Ctrl+C.");
      },
    );
  };
  return (
    <Dialog title={`The token of ${user}`} close={close}>
      <p>Copy it now. It is shown this once: the lake keeps a hash of it, and nobody can show it again.</p>
      <code class="secret">{token}</code>
      <p class="dim" role="status">
        {copied}
      </p>
      <div class="buttons">
        <button type="button" class="copy" onClick={copy}>
          <Icon name="link" /> Copy
        </button>
        <button type="button" class="primary" onClick={close}>
          I have it
        </button>
      </div>
    </Dialog>
  );
}

function Lasts({ value, change }: { value: string; change: (value: string) => void }) {
  return (
    <label>
      The token is good for
      <select name="lasts" value={value} onChange={(event) => change(event.currentTarget.value)}>
        {LASTS.map(([id, label]) => (
          <option key={id} value={id}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

async function newToken(user: string, lasts: string): Promise<string> {
  const answer = await post("access/tokens", { user, ...(lasts ? { expires_in: lasts } : {}) });
  return ((await answer.json()) as { token: string }).token;
}

const lastsSaid = (lasts: string) => (lasts ? `for ${lasts}` : "until it is revoked");

export function NewUser({ roles, close, done }: Asks & { roles: readonly string[] }) {
  const [name, setName] = useState("");
  const [chosen, setChosen] = useState<readonly string[]>([]);
  const [withToken, setWithToken] = useState(true);
  const [lasts, setLasts] = useState("90 days");
  const [created, setCreated] = useState(false);
  const [made, setMade] = useState<string | null>(null);
  if (made !== null) return <TokenShown user={name.toLowerCase()} token={made} close={() => (setMade(null), close())} />;
  const may = chosen.length ? `may do what ${chosen.length === 1 ? "the role" : "the roles"} ${listed(chosen)} allow${chosen.length === 1 ? "s" : ""}` : "may do nothing until a role or a grant allows it";
  return (
    <FormDialog
      title="New user"
      verb={withToken ? "Create user and token" : "Create user"}
      ready={isName(name)}
      happens={`${name.toLowerCase()} ${may}${withToken ? `, and comes in by a new token ${lastsSaid(lasts)}, which is shown once` : ""}.`}
      act={async () => {
        if (!created) await post("access/users", { name, roles: chosen });
        setCreated(true); // a token that could not be made is asked for again, and not the user
        done();
        if (withToken) setMade(await newToken(name, lasts));
      }}
      done={() => withToken || close()}
      close={close}
    >
      <label>
        Name
        <input name="name" required maxLength={127} pattern={NAME} title={NAME_HELP} autocomplete="off" spellcheck={false} placeholder="ann" value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <Boxes legend="Roles" names={roles} chosen={chosen} change={setChosen} />
      <label class="inline">
        <input type="checkbox" name="with-token" checked={withToken} onChange={(event) => setWithToken(event.currentTarget.checked)} />
        Make a token, too
      </label>
      {withToken && <Lasts value={lasts} change={setLasts} />}
    </FormDialog>
  );
}

export function NewToken({ user, close, done }: Asks & { user: string }) {
  const [lasts, setLasts] = useState("90 days");
  const [made, setMade] = useState<string | null>(null);
  if (made !== null) return <TokenShown user={user} token={made} close={() => (setMade(null), close())} />;
  return (
    <FormDialog
      title={`New token of ${user}`}
      verb="Make token"
      ready
      happens={`Whoever has the token comes in as ${user} ${lastsSaid(lasts)}. Other tokens of ${user} stay good.`}
      act={async () => {
        const token = await newToken(user, lasts);
        done();
        setMade(token);
      }}
      done={() => undefined}
      close={close}
    >
      <Lasts value={lasts} change={setLasts} />
    </FormDialog>
  );
}

export function NewRole({ close, done }: Asks) {
  const [name, setName] = useState("");
  return (
    <FormDialog title="New role" verb="Create role" ready={isName(name)} happens={`There will be a role ${name.toLowerCase()} without members. It allows nothing until something is granted to it.`} act={() => post("access/roles", { name })} done={() => (done(), close())} close={close}>
      <label>
        Name
        <input name="name" required maxLength={127} pattern={NAME} title={NAME_HELP} autocomplete="off" spellcheck={false} placeholder="analyst" value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
    </FormDialog>
  );
}

export function NewMember({ role, members, close, done }: Asks & { role: string; members: readonly string[] }) {
  const found = useLoad(loadGrantees, []);
  const [member, setMember] = useState("");
  const free = (names: readonly string[]) => names.filter((each) => each !== role && !members.includes(each));
  const grave = role === "admin" ? " Administrators may do everything, and no filter or mask holds for them." : "";
  return (
    <FormDialog title={`Give the role ${role}`} verb="Give role" ready={member !== ""} happens={`${member} may do what the role ${role} allows, from the next statement on.${grave}`} act={() => post(`access/roles/${encodeURIComponent(role)}/members`, { member })} done={() => (done(), close())} close={close}>
      <Grantee label="To" users={free(found.data?.users ?? [])} roles={free(found.data?.roles ?? []).filter((each) => !["admin", "writer", "reader"].includes(each))} value={member} change={setMember} />
    </FormDialog>
  );
}

export function NewGrant({ close, done }: Asks) {
  const names = useLoad(loadGrantees, []);
  const known = useLoad(
    async (signal) => {
      const [objects, { schemas }] = await Promise.all([loadKnown(signal), get<{ schemas: string[] }>("schemas", {}, signal)]);
      return { ...objects, schemas };
    },
    [],
  );
  const [to, setTo] = useState("");
  const [scope, setScope] = useState<WantedGrant["scope"]>("table");
  const [object, setObject] = useState("");
  const [columns, setColumns] = useState<readonly string[]>([]);
  const [privileges, setPrivileges] = useState<readonly string[]>(["SELECT"]);
  const isTable = scope === "table" && (known.data?.tables.some((each) => each.name === object) ?? false);
  const facts = useLoad(async (signal) => (isTable ? (await get<TableFacts>(tablePath(object), {}, signal)).columns.map((each) => each.name) : []), [object, isTable]);
  const allowed = privilegesOf(scope, columns.length > 0);
  const wanted: WantedGrant = { to, scope, object, columns, privileges: privileges.filter((each) => allowed.includes(each)) };
  const place = (next: WantedGrant["scope"], name: string) => {
    setScope(next);
    setObject(name);
    setColumns([]);
  };
  return (
    <FormDialog title="New grant" verb="Grant" ready={to !== "" && wanted.privileges.length > 0 && (scope === "lake" || object !== "")} happens={grantSaid(wanted)} act={() => post("access/grants", grantBody(wanted))} done={() => (done(), close())} close={close}>
      <Grantee label="To" users={names.data?.users ?? []} roles={names.data?.roles ?? []} value={to} change={setTo} />
      <label>
        On
        <select name="scope" value={scope} onChange={(event) => place(event.currentTarget.value as WantedGrant["scope"], "")}>
          <option value="table">a table or view</option>
          <option value="schema">a schema</option>
          <option value="lake">the whole lake</option>
        </select>
      </label>
      {scope === "schema" && (
        <label>
          Schema
          <select name="object" required value={object} onChange={(event) => place("schema", event.currentTarget.value)}>
            <option value="">choose…</option>
            {known.data?.schemas.map((each) => <option key={each}>{each}</option>)}
          </select>
        </label>
      )}
      {scope === "table" && (
        <label>
          Table or view
          <select name="object" required value={object} onChange={(event) => place("table", event.currentTarget.value)}>
            <option value="">choose…</option>
            {[...(known.data?.tables ?? []), ...(known.data?.views ?? [])].map((each) => (
              <option key={each.name} value={each.name}>
                {each.schema}.{each.own}
              </option>
            ))}
          </select>
        </label>
      )}
      {!!facts.data?.length && <Boxes legend="Columns" note="none chosen: all of them" names={facts.data} chosen={columns} change={setColumns} />}
      <Boxes legend="Privileges" names={allowed} chosen={wanted.privileges} change={setPrivileges} />
    </FormDialog>
  );
}

export function NewRule({ close, done }: Asks) {
  const known = useLoad(loadKnown, []);
  const names = useLoad(loadGrantees, []);
  const [kind, setKind] = useState<"filter" | "mask">("filter");
  const [table, setTable] = useState("");
  const [name, setName] = useState("");
  const [column, setColumn] = useState("");
  const [to, setTo] = useState("");
  const [using, setUsing] = useState("");
  const facts = useLoad(async (signal) => (table ? (await get<TableFacts>(tablePath(table), {}, signal)).columns.map((each) => each.name) : []), [table]);
  useEffect(() => setColumn(""), [table]);
  const ready = table !== "" && using.trim() !== "" && (kind === "mask" ? column !== "" : isName(name));
  const act = () => post("access/rules", { kind, table, using, ...(kind === "mask" ? { column } : { name }), ...(to ? { to } : {}) });
  return (
    <FormDialog title="New row filter or mask" verb={kind === "mask" ? "Mask column" : "Filter rows"} ready={ready} happens={ruleSaid({ kind, table, column, to, using: using.trim() })} act={act} done={() => (done(), close())} close={close}>
      <fieldset class="boxes">
        <legend>Kind</legend>
        {(["filter", "mask"] as const).map((each) => (
          <label class="inline" key={each}>
            <input type="radio" name="kind" value={each} checked={kind === each} onChange={() => setKind(each)} />
            {each === "filter" ? "row filter" : "mask of a column"}
          </label>
        ))}
      </fieldset>
      <label>
        Table
        <select name="table" required value={table} onChange={(event) => setTable(event.currentTarget.value)}>
          <option value="">choose…</option>
          {known.data?.tables.map((each) => (
            <option key={each.name} value={each.name}>
              {each.schema}.{each.own}
            </option>
          ))}
        </select>
      </label>
      {kind === "mask" ? (
        <label>
          Column
          <select name="column" required value={column} onChange={(event) => setColumn(event.currentTarget.value)}>
            <option value="">choose…</option>
            {facts.data?.map((each) => <option key={each}>{each}</option>)}
          </select>
        </label>
      ) : (
        <label>
          Name
          <input name="name" required maxLength={127} pattern={NAME} title={NAME_HELP} autocomplete="off" spellcheck={false} placeholder="europe" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
      )}
      <label>
        For
        <select name="to" value={to} onChange={(event) => setTo(event.currentTarget.value)}>
          <option value="">everybody</option>
          {names.data?.roles.map((each) => (
            <option key={each} value={each}>
              members of {each}
            </option>
          ))}
        </select>
      </label>
      <label>
        <span>
          {kind === "mask" ? "Value" : "Condition"} <span class="dim">an expression over the columns; also current_principal() and has_role('…')</span>
        </span>
        <textarea name="using" required rows={3} maxLength={10_000} spellcheck={false} placeholder={kind === "mask" ? "left(email, 1) || '…'" : "region = 'EU'"} value={using} onInput={(event) => setUsing(event.currentTarget.value)} />
      </label>
    </FormDialog>
  );
}

function Grantee({ label, users, roles, value, change }: { label: string; users: readonly string[]; roles: readonly string[]; value: string; change: (value: string) => void }) {
  return (
    <label>
      {label}
      <select name="grantee" required value={value} onChange={(event) => change(event.currentTarget.value)}>
        <option value="">choose…</option>
        {[["Users", users] as const, ["Roles", roles] as const].map(
          ([group, names]) =>
            names.length > 0 && (
              <optgroup key={group} label={group}>
                {names.map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </optgroup>
            ),
        )}
      </select>
    </label>
  );
}

function Boxes({ legend, note, names, chosen, change }: { legend: string; note?: string; names: readonly string[]; chosen: readonly string[]; change: (chosen: readonly string[]) => void }) {
  const pick = (name: string) => change(chosen.includes(name) ? chosen.filter((each) => each !== name) : names.filter((each) => each === name || chosen.includes(each)));
  return (
    <fieldset class="boxes">
      <legend>
        {legend} {note && <span class="dim">{note}</span>}
      </legend>
      {names.map((each) => (
        <label class="inline" key={each}>
          <input type="checkbox" name={legend.toLowerCase()} value={each} checked={chosen.includes(each)} onChange={() => pick(each)} />
          {each}
        </label>
      ))}
    </fieldset>
  );
}
