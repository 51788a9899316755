/** Users, roles, grants, row filters, masks and tokens of the lake: lists, and forms that change them. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { ask } from "./api.ts";
import "./access.css";
import { NewGrant, NewMember, NewRole, NewRule, NewToken, NewUser } from "./access-forms.tsx";
import { ago, count, moment, parseTime } from "./format.ts";
import { replaceRoute, useNow, useSession } from "./hooks.ts";
import { Confirm, Search, useListing, type Listing, type Question } from "./listing.tsx";
import "./pages.css";
import { routeTo, type Route } from "./route.ts";
import { Empty, Failure, Icon, Tabs, Waiting } from "./ui.tsx";

interface User {
  name: string;
  state: "enabled" | "disabled";
  roles: string[];
  tokens: number;
  created: string;
}
interface RoleEntry {
  name: string;
  built_in: boolean;
  members: string[];
}
interface Grant {
  id: string;
  grantee: string;
  scope: "lake" | "schema" | "table";
  object: string | null;
  column: string | null;
  privilege: string;
  dropped: boolean;
  created: string;
}
interface Rule {
  id: string;
  table: string;
  kind: "filter" | "mask";
  name: string | null;
  column: string | null;
  role: string | null;
  using: string;
  created: string;
}
interface Token {
  id: string;
  user: string;
  created: string;
  expires: string | null;
  expired: boolean;
}

const TABS = [
  { id: "users", label: "Users" },
  { id: "roles", label: "Roles" },
  { id: "grants", label: "Grants" },
  { id: "rules", label: "Filters and masks" },
  { id: "tokens", label: "Tokens" },
] as const;
type Kind = (typeof TABS)[number]["id"];
const PAGE = 100;
const NEW: Record<Kind, string> = { users: "New user…", roles: "New role…", grants: "New grant…", rules: "New filter or mask…", tokens: "" };

/** A form that is open; `null` for none. */
type Open = { form: "new" } | { form: "token"; user: string } | { form: "member"; role: string; members: string[] } | { form: "question"; question: Question } | null;

/** What the lists need of the page. */
interface Acts {
  ask: (question: Question) => void;
  open: (open: Open) => void;
  /** The name of the user that looks at the page. */
  self: string;
}

export function AccessPage({ route }: { route: Route }) {
  const { facts } = useSession();
  const kind: Kind = TABS.find((each) => each.id === route.query["tab"])?.id ?? "users";
  const search = route.query["search"] ?? "";
  const found = useListing<unknown>(`access/${kind}`, kind, { search, limit: PAGE });
  const roles = useListing<RoleEntry>("access/roles", "roles", {});
  const [open, setOpen] = useState<Open>(null);
  const go = (tab: string, text = "") => replaceRoute(routeTo(["access"], { tab, search: text }));
  const again = () => (found.again(), roles.again());
  const close = () => setOpen(null);
  const acts: Acts = { ask: (question) => setOpen({ form: "question", question }), open: setOpen, self: facts.principal.split("/").at(-1) ?? "" };
  return (
    <article class="access">
      <header class="title">
        <h1>Access</h1>
        <p class="dim">Who may see and change what. Grants open tables, row filters and masks hide rows and values; all of it holds from the next statement on.</p>
      </header>
      {found.entries && found.facts["users_enter"] === false && (
        <div class="notice">
          <Icon name="key" />
          <div>
            This service lets in by tokens of its own. <code>quacklake serve --users</code> lets in the users below, by their tokens.
          </div>
        </div>
      )}
      <Tabs label="Parts of access" choices={TABS} chosen={kind} choose={(id) => go(id)} />
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${kind}`} class="panel">
        <div class="filters">
          <Search key={kind} label={`Search ${kind === "rules" ? "filters and masks" : kind}`} value={search} change={(text) => go(kind, text)} />
          {NEW[kind] && (
            <button type="button" class="new primary" onClick={() => setOpen({ form: "new" })}>
              <Icon name="plus" /> {NEW[kind]}
            </button>
          )}
        </div>
        {found.error && <Failure error={found.error} again={found.again} />}
        {!found.entries && !found.error && <Waiting lines={5} />}
        {found.entries && found.entries.length === 0 && <Nothing kind={kind} search={search} />}
        {!!found.entries?.length && kind === "users" && <Users users={found.entries as User[]} {...acts} />}
        {!!found.entries?.length && kind === "roles" && <Roles roles={found.entries as RoleEntry[]} {...acts} />}
        {!!found.entries?.length && kind === "grants" && <Grants grants={found.entries as Grant[]} {...acts} />}
        {!!found.entries?.length && kind === "rules" && <Rules rules={found.entries as Rule[]} {...acts} />}
        {!!found.entries?.length && kind === "tokens" && <TokenList tokens={found.entries as Token[]} {...acts} />}
        <More found={found} />
      </div>
      {open?.form === "new" && kind === "users" && <NewUser roles={roles.entries?.map((each) => each.name) ?? []} close={close} done={again} />}
      {open?.form === "new" && kind === "roles" && <NewRole close={close} done={again} />}
      {open?.form === "new" && kind === "grants" && <NewGrant close={close} done={again} />}
      {open?.form === "new" && kind === "rules" && <NewRule close={close} done={again} />}
      {open?.form === "token" && <NewToken user={open.user} close={close} done={again} />}
      {open?.form === "member" && <NewMember role={open.role} members={open.members} close={close} done={again} />}
      {open?.form === "question" && <Confirm question={open.question} close={close} done={again} />}
    </article>
  );
}

function Nothing({ kind, search }: { kind: Kind; search: string }) {
  if (search) return <Empty title={`Nothing matches “${search}”.`} />;
  if (kind === "users") return <Empty title="There are no users yet.">Make one, give it a role or a grant, and hand out its token.</Empty>;
  if (kind === "grants") return <Empty title="Nothing is granted yet.">Roles reader, writer and admin need no grants. Others may see only what a grant names.</Empty>;
  if (kind === "rules") return <Empty title="There are no row filters and masks.">Whoever may read a table sees all of its rows and values.</Empty>;
  if (kind === "tokens") return <Empty title="There are no tokens.">Make one of a user, on the page of users.</Empty>;
  return <Empty title="There are no roles." />;
}

export function More<T>({ found }: { found: Listing<T> }) {
  if (!found.more) return null;
  return (
    <p class="centre">
      <button type="button" class="more-entries" disabled={found.loading} onClick={found.more}>
        More than {count(found.entries?.length ?? 0)}: show the next
      </button>
    </p>
  );
}

/** A list in a frame; the names of its columns of numbers end with #. */
export function List({ label, heads, children }: { label: string; heads: readonly string[]; children: ComponentChildren }) {
  return (
    <div class="framed scroll" tabIndex={0} role="region" aria-label={label}>
      <table class="list">
        <thead>
          <tr>
            {heads.map((each) => (
              <th key={each} scope="col" class={each.endsWith("#") ? "number" : undefined}>
                {each === "Do" ? <span class="unseen">Do</span> : each.replace(/#$/, "")}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

function When({ text }: { text: string }) {
  const then = parseTime(text);
  return <time title={moment(then)}>{ago(then, useNow())}</time>;
}

const remove = (path: string) => () => ask(path, { method: "DELETE" });

function Users({ users, ask: put, open, self }: Acts & { users: readonly User[] }) {
  const state = (user: User): Question => {
    const enabled = user.state === "disabled";
    return {
      title: `${enabled ? "Enable" : "Disable"} ${user.name}`,
      about: enabled ? `${user.name} may do again what its roles and grants allow, by the tokens that it has.` : `${user.name} may do nothing any more. Its roles, grants and tokens stay, and hold again when you enable it.${user.name === self ? " This is you: you will be signed out." : ""}`,
      verb: enabled ? "Enable" : "Disable",
      act: () => ask(`access/users/${encodeURIComponent(user.name)}`, { method: "POST", body: { enabled } }),
    };
  };
  const drop = (user: User): Question => ({
    title: `Drop ${user.name}`,
    about: `${user.name} is removed with its tokens (${count(user.tokens)}), roles and grants. Tables and snapshots stay, and so does its name in them. This cannot be undone.${user.name === self ? " This is you: you will be signed out." : ""}`,
    verb: "Drop user",
    grave: true,
    act: remove(`access/users/${encodeURIComponent(user.name)}`),
  });
  return (
    <List label="Users" heads={["User", "State", "Roles", "Tokens#", "Created", "Do"]}>
      {users.map((user) => (
        <tr key={user.name}>
          <th scope="row" class="wrap">
            {user.name} {user.name === self && <span class="tag">you</span>}
          </th>
          <td>
            <span class={`stand ${user.state === "enabled" ? "good" : "bad"}`}>{user.state}</span>
          </td>
          <td class="wrap">{user.roles.length ? user.roles.map((role) => <span key={role} class="chip">{role}</span>) : <span class="dim">none</span>}</td>
          <td class="number">{count(user.tokens)}</td>
          <td>
            <When text={user.created} />
          </td>
          <td>
            <span class="row-buttons">
              <button type="button" class="token" aria-label={`New token of ${user.name}`} onClick={() => open({ form: "token", user: user.name })}>
                New token…
              </button>
              <button type="button" class="state" aria-label={`${user.state === "enabled" ? "Disable" : "Enable"} ${user.name}`} onClick={() => put(state(user))}>
                {user.state === "enabled" ? "Disable…" : "Enable…"}
              </button>
              <button type="button" class="drop" aria-label={`Drop ${user.name}`} onClick={() => put(drop(user))}>
                Drop…
              </button>
            </span>
          </td>
        </tr>
      ))}
    </List>
  );
}

function Roles({ roles, ask: put, open, self }: Acts & { roles: readonly RoleEntry[] }) {
  const take = (role: string, member: string): Question => ({
    title: `Take ${role} from ${member}`,
    about: `${member} loses what the role ${role} allows, with the next statement. Other roles and grants stay.${member === self && role === "admin" ? " This is you: you will not be able to manage access any more." : ""}`,
    verb: "Take role away",
    act: remove(`access/roles/${encodeURIComponent(role)}/members/${encodeURIComponent(member)}`),
  });
  const drop = (role: RoleEntry): Question => ({
    title: `Drop ${role.name}`,
    about: `The role ${role.name} is removed with its grants, and ${role.members.length ? `its members (${count(role.members.length)}) lose what it allows` : "it has no members"}. This cannot be undone.`,
    verb: "Drop role",
    grave: true,
    act: remove(`access/roles/${encodeURIComponent(role.name)}`),
  });
  return (
    <List label="Roles" heads={["Role", "Members", "Do"]}>
      {roles.map((role) => (
        <tr key={role.name}>
          <th scope="row" class="wrap">
            {role.name} {role.built_in && <span class="tag">in every lake</span>}
          </th>
          <td class="wrap">
            {role.members.map((member) => (
              <span key={member} class="chip">
                {member}
                <button type="button" class="quiet take" aria-label={`Take ${role.name} from ${member}`} onClick={() => put(take(role.name, member))}>
                  <Icon name="close" />
                </button>
              </span>
            ))}
            {!role.members.length && <span class="dim">none</span>}
          </td>
          <td>
            <span class="row-buttons">
              <button type="button" class="give" aria-label={`Give the role ${role.name}`} onClick={() => open({ form: "member", role: role.name, members: role.members })}>
                Give…
              </button>
              {!role.built_in && (
                <button type="button" class="drop" aria-label={`Drop ${role.name}`} onClick={() => put(drop(role))}>
                  Drop…
                </button>
              )}
            </span>
          </td>
        </tr>
      ))}
    </List>
  );
}

function placeOf(grant: Grant): string {
  if (grant.object === null) return "the whole lake";
  return grant.scope === "schema" ? `schema ${grant.object}` : grant.column === null ? grant.object : `${grant.object} (${grant.column})`;
}

function Grants({ grants, ask: put }: Acts & { grants: readonly Grant[] }) {
  const revoke = (grant: Grant): Question => ({
    title: `Revoke ${grant.privilege} from ${grant.grantee}`,
    about: `${grant.grantee} may not ${grant.privilege} on ${placeOf(grant)} any more, with the next statement, unless a role or another grant allows it.`,
    verb: "Revoke",
    act: remove(`access/grants/${encodeURIComponent(grant.id)}`),
  });
  return (
    <List label="Grants" heads={["User or role", "May", "On", "State", "Granted", "Do"]}>
      {grants.map((grant) => (
        <tr key={grant.id}>
          <th scope="row" class="wrap">
            {grant.grantee}
          </th>
          <td>{grant.privilege}</td>
          <td class="wrap">{placeOf(grant)}</td>
          <td>{grant.dropped ? <span class="stand warn" title="It still shows the table in the snapshots that have it">dropped</span> : <span class="stand good">current</span>}</td>
          <td>
            <When text={grant.created} />
          </td>
          <td>
            <button type="button" class="revoke" aria-label={`Revoke ${grant.privilege} on ${placeOf(grant)} from ${grant.grantee}`} onClick={() => put(revoke(grant))}>
              Revoke…
            </button>
          </td>
        </tr>
      ))}
    </List>
  );
}

function Rules({ rules, ask: put }: Acts & { rules: readonly Rule[] }) {
  const whom = (rule: Rule) => (rule.role === null ? "everybody" : `members of ${rule.role}`);
  const title = (rule: Rule) => (rule.kind === "filter" ? `the filter ${rule.name}` : `the mask of ${rule.column}`);
  const drop = (rule: Rule): Question => ({
    title: `Drop ${title(rule)}`,
    about: rule.kind === "filter" ? `The filter ${rule.name} of ${rule.table} is removed. As soon as the table has no filter, everybody who may read it sees all of its rows.` : `From now on ${whom(rule)} who may read ${rule.table} will see ${rule.column} as it is, unless another mask hides it.`,
    verb: rule.kind === "filter" ? "Drop filter" : "Drop mask",
    grave: true,
    act: remove(`access/rules/${encodeURIComponent(rule.id)}`),
  });
  return (
    <List label="Row filters and masks" heads={["Table", "Kind", "For", "Shows", "Made", "Do"]}>
      {rules.map((rule) => (
        <tr key={rule.id}>
          <th scope="row" class="wrap">
            {rule.table}
          </th>
          <td class="wrap">{rule.kind === "filter" ? `filter ${rule.name}` : `mask of ${rule.column}`}</td>
          <td class="wrap">{whom(rule)}</td>
          <td class="wrap">
            <code class="code">{rule.using}</code>
          </td>
          <td>
            <When text={rule.created} />
          </td>
          <td>
            <button type="button" class="drop" aria-label={`Drop ${title(rule)} of ${rule.table}`} onClick={() => put(drop(rule))}>
              Drop…
            </button>
          </td>
        </tr>
      ))}
    </List>
  );
}

function TokenList({ tokens, ask: put }: Acts & { tokens: readonly Token[] }) {
  const revoke = (token: Token): Question => ({
    title: `Revoke a token of ${token.user}`,
    about: `Programs that use the token ${token.id} are refused, at the latest after a few seconds. ${token.user} stays, and so do its other tokens. This cannot be undone.`,
    verb: "Revoke token",
    grave: true,
    act: remove(`access/tokens/${encodeURIComponent(token.id)}`),
  });
  return (
    <List label="Tokens" heads={["User", "Token", "Made", "Ends", "Do"]}>
      {tokens.map((token) => (
        <tr key={token.id}>
          <th scope="row" class="wrap">
            {token.user}
          </th>
          <td>
            <span class="hash">qk_{token.id}_…</span>
          </td>
          <td>
            <When text={token.created} />
          </td>
          <td>{token.expires === null ? <span class="dim">never</span> : token.expired ? <span class="stand bad">ended</span> : <time>{moment(parseTime(token.expires))}</time>}</td>
          <td>
            <button type="button" class="revoke" aria-label={`Revoke the token ${token.id} of ${token.user}`} onClick={() => put(revoke(token))}>
              Revoke…
            </button>
          </td>
        </tr>
      ))}
    </List>
  );
}
