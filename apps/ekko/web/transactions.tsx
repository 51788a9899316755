/** Ekko's pages: transactions, wallets, networks and statistics. */

import { useEffect, useState } from "preact/hooks";

import { ask, get, Problem, runSql } from "dashboard/api.ts";
import { ago, count, counted, moment, parseTime } from "dashboard/format.ts";
import { told } from "dashboard/history.ts";
import { replaceRoute, useHeard, useLoad, useNewest, useNow } from "dashboard/hooks.ts";
import { routeTo, snapshotOf, type Route } from "dashboard/route.ts";
import type { Row } from "dashboard/rows.ts";
import type { Snapshot } from "dashboard/types.ts";
import { Dialog, Empty, Failure, Figure, Icon, sentence, Tabs, Waiting } from "dashboard/ui.tsx";

import { asked, coins, filterOf, KINDS, short, SIZES, type Filter } from "./chain.ts";

interface Transaction {
  hash: string;
  from: string;
  to: string | null;
  value: string;
  gas: string;
  gasPrice: string;
  nonce: string;
  input: string;
  blockNumber: number;
  blockHash: string;
  transactionIndex: number;
  timestamp: string;
  network: string;
  subnet: string;
  status: string;
  details: { token_symbol: string | null; transaction_type: string };
}

interface PageOf {
  transactions: Transaction[];
  total: number;
  has_more: boolean;
}

interface Network {
  network: string;
  subnet: string;
  transactions: number;
}

/** Ekko's endpoints are beside the others. */
const BASE = "../transactions/";
const PARTS = [
  { id: "list", label: "Transactions" },
  { id: "wallets", label: "Wallets" },
  { id: "networks", label: "Networks" },
  { id: "statistics", label: "Statistics" },
];
const NAMES: Record<string, string> = { transfer: "Transfer", contract_call: "Call", contract_creation: "Creation" };

export function TransactionsPage({ route }: { route: Route }) {
  const part = PARTS.some((each) => each.id === route.path[1]) ? route.path[1]! : "list";
  const at = snapshotOf(route.query);
  return (
    <article class="chain">
      <header class="title">
        <h1>Transactions</h1>
        <div class="actions">
          <Travel at={at} choose={(chosen) => replaceRoute(routeTo(["transactions", part], { ...route.query, page: null, at: chosen }))} />
        </div>
      </header>
      <Tabs label="Parts" choices={PARTS} chosen={part} choose={(id) => (location.hash = routeTo(["transactions", id], { at }))} />
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${part}`} class="panel">
        {part === "list" && <List route={route} />}
        {part === "wallets" && <Wallets at={at} />}
        {part === "networks" && <Networks at={at} />}
        {part === "statistics" && <Statistics at={at} />}
      </div>
    </article>
  );
}

// -- the list ----------------------------------------------------------------------------------------------------------

function List({ route }: { route: Route }) {
  const filter = filterOf(route.query, snapshotOf(route.query));
  const change = (part: Partial<Filter>) => {
    const next = { page: 0, ...part };
    const { kind, network, search, wallet, from, to, limit, page, at } = { ...filter, ...next };
    replaceRoute(routeTo(["transactions", "list"], { kind: kind === "all" ? null : kind, network, search, wallet, from, to, size: limit === SIZES[0] ? null : limit, page: page || null, at }));
  };
  const newest = useNewest(2000);
  const follows = filter.at === null && filter.page === 0;
  const networks = useLoad((signal) => get<{ networks: Network[] }>(`${BASE}networks`, { version: filter.at }, signal), [filter.at]);
  const inputs = JSON.stringify(filter);
  const found = useLoad((signal) => get<PageOf>(BASE, { ...asked(filter), limit: filter.limit, offset: filter.page * filter.limit }, signal), [inputs], follows ? newest : 0);
  const [chosen, setChosen] = useState<Transaction | null>(null);
  const total = found.data?.total ?? 0;
  const pages = Math.max(1, Math.ceil(total / filter.limit));
  return (
    <>
      <div class="filters">
        <Search value={filter.search} change={(search) => change({ search })} />
        <label>
          Network
          <select name="network" onChange={(event) => change({ network: event.currentTarget.value })}>
            <option value="">all</option>
            {(networks.data?.networks ?? []).map((each) => {
              const name = `${each.network}/${each.subnet}`;
              return (
                <option key={name} selected={name === filter.network}>
                  {name}
                </option>
              );
            })}
          </select>
        </label>
        <label>
          From
          <input type="date" name="from" value={filter.from} onChange={(event) => change({ from: event.currentTarget.value })} />
        </label>
        <label>
          To
          <input type="date" name="to" value={filter.to} onChange={(event) => change({ to: event.currentTarget.value })} />
        </label>
      </div>
      <Tabs label="Kinds" name="kind" choices={KINDS} chosen={filter.kind} choose={(kind) => change({ kind })} />
      <div id="kind-panel" role="tabpanel" aria-labelledby={`kind-${filter.kind}`} class="panel">
        {filter.wallet && (
          <p>
            Of the wallet <span class="hash">{filter.wallet}</span>{" "}
            <button type="button" class="link" onClick={() => change({ wallet: "" })}>
              all wallets
            </button>
          </p>
        )}
        {found.error && <Failure error={found.error} again={found.again} />}
        {!found.data && !found.error && <Waiting lines={10} />}
        {found.data && (
          <div class="pager" data-total={total}>
            <strong role="status">{counted(total, "transaction")}</strong>
            <LiveNote on={follows} />
            <span class="space" />
            <Export filter={filter} />
          </div>
        )}
        {found.data && !found.data.transactions.length && <Nothing filter={filter} />}
        {!!found.data?.transactions.length && <Rows rows={found.data.transactions} choose={setChosen} wallet={(wallet) => change({ wallet })} />}
        {found.data && (
          <nav class="pager" aria-label="Pages of transactions">
            <button type="button" disabled={filter.page === 0} onClick={() => change({ page: filter.page - 1 })}>
              Newer
            </button>
            <span>
              page {count(filter.page + 1)} of {count(pages)}
            </span>
            <button type="button" disabled={!found.data.has_more} onClick={() => change({ page: filter.page + 1 })}>
              Older
            </button>
            <span class="space" />
            <label class="inline">
              Rows
              <select name="size" onChange={(event) => change({ limit: Number(event.currentTarget.value) })}>
                {SIZES.map((size) => (
                  <option key={size} selected={size === filter.limit}>
                    {size}
                  </option>
                ))}
              </select>
            </label>
          </nav>
        )}
        {chosen && <Details transaction={chosen} close={() => setChosen(null)} />}
      </div>
    </>
  );
}

function Nothing({ filter }: { filter: Filter }) {
  const asks = filter.kind !== "all" || [filter.network, filter.search, filter.wallet, filter.from, filter.to].some((each) => each !== "");
  if (asks || filter.page > 0) return <Empty title="No transaction is like this.">Change the filters, or search for another hash or address.</Empty>;
  if (filter.at !== null) return <Empty title="There were no transactions yet.">Choose a later snapshot.</Empty>;
  return <Empty title="There are no transactions yet.">They show here as they come.</Empty>;
}

/** A field that searches once typing has paused. */
function Search({ value, change }: { value: string; change: (text: string) => void }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => change(text), 250);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <div class="search">
      <Icon name="search" />
      <input type="search" name="search" aria-label="Search by hash or address" placeholder="Hash or address" value={text} onInput={(event) => setText(event.currentTarget.value)} />
    </div>
  );
}

function LiveNote({ on }: { on: boolean }) {
  const { state } = useHeard();
  const live = on && state === "live";
  return <span class={live ? "live-note on" : "live-note"}>{live ? "live" : on ? "reconnecting" : "stands still"}</span>;
}

function Travel({ at, choose }: { at: number | null; choose: (at: number | null) => void }) {
  const newest = useNewest(5000);
  const now = useNow();
  const found = useLoad((signal) => get<{ snapshots: Snapshot[] }>("snapshots", { limit: 100 }, signal), [], newest);
  const list = found.data?.snapshots ?? [];
  return (
    <label class="inline travel">
      As of
      <select name="at" onChange={(event) => choose(event.currentTarget.value === "" ? null : Number(event.currentTarget.value))}>
        <option value="">now</option>
        {at !== null && !list.some((each) => each.snapshot_id === at) && (
          <option value={at} selected>
            #{at}
          </option>
        )}
        {list.map((each) => (
          <option key={each.snapshot_id} value={each.snapshot_id} selected={each.snapshot_id === at}>
            #{each.snapshot_id} · {ago(parseTime(each.snapshot_time), now)} · {told(each).slice(0, 32)}
          </option>
        ))}
      </select>
    </label>
  );
}

function Rows({ rows, choose, wallet }: { rows: readonly Transaction[]; choose: (each: Transaction) => void; wallet: (address: string) => void }) {
  const now = useNow();
  const address = (text: string | null) =>
    text === null ? (
      <span class="dim">new contract</span>
    ) : (
      <button type="button" class="link hash" title={text} aria-label={`Transactions of ${text}`} onClick={() => wallet(text)}>
        {short(text)}
      </button>
    );
  return (
    <div class="framed scroll" tabIndex={0} role="region" aria-label="Transactions">
      <table class="list">
        <thead>
          <tr>
            <th>Hash</th>
            <th>Kind</th>
            <th>From</th>
            <th>To</th>
            <th class="number">Value</th>
            <th>Network</th>
            <th class="number">Block</th>
            <th>Time</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((each) => (
            <tr key={each.hash}>
              <td>
                <button type="button" class="link hash" title={each.hash} aria-label={`Look at ${each.hash}`} onClick={() => choose(each)}>
                  {short(each.hash)}
                </button>
              </td>
              <td>
                <span class={each.status === "failed" ? "stand bad" : "stand good"}>{each.status === "failed" ? "Failed" : (NAMES[each.details.transaction_type] ?? each.details.transaction_type)}</span>
              </td>
              <td>{address(each.from)}</td>
              <td>{address(each.to)}</td>
              <td class="number">
                {coins(each.value)} <span class="dim">{each.details.token_symbol}</span>
              </td>
              <td>
                {each.network} <span class="dim">{each.subnet}</span>
              </td>
              <td class="number">{count(each.blockNumber)}</td>
              <td>
                <time dateTime={each.timestamp} title={moment(new Date(each.timestamp))}>
                  {ago(new Date(each.timestamp), now)}
                </time>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Details({ transaction, close }: { transaction: Transaction; close: () => void }) {
  const facts: [string, string][] = [
    ["Hash", transaction.hash],
    ["Status", transaction.status],
    ["Time", `${moment(new Date(transaction.timestamp))}`],
    ["Network", `${transaction.network} ${transaction.subnet}`],
    ["Block", `${count(transaction.blockNumber)}, number ${transaction.transactionIndex} in it`],
    ["Block hash", transaction.blockHash],
    ["From", transaction.from],
    ["To", transaction.to ?? "a new contract"],
    ["Value", `${coins(transaction.value, 18, 18)} ${transaction.details.token_symbol ?? ""}`],
    ["Gas", `${transaction.gas} at ${transaction.gasPrice}`],
    ["Nonce", transaction.nonce],
    ["Input", transaction.input],
  ];
  return (
    <Dialog title="Transaction" close={close}>
      <dl class="pairs">
        {facts.map(([name, text]) => (
          <>
            <dt>{name}</dt>
            <dd class={text.startsWith("0x") ? "hash" : undefined}>{text}</dd>
          </>
        ))}
      </dl>
    </Dialog>
  );
}

function Export({ filter }: { filter: Filter }) {
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const save = async () => {
    setBusy(true);
    try {
      const answer = await ask(`${BASE}export`, { query: asked(filter), accept: "text/csv" });
      const address = URL.createObjectURL(await answer.blob());
      const link = document.createElement("a");
      link.href = address;
      link.download = "transactions.csv";
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
    } catch (failed) {
      setError(failed instanceof Error ? failed : new Error(String(failed)));
    }
    setBusy(false);
  };
  return (
    <>
      <button type="button" class="export" disabled={busy} onClick={() => void save()}>
        <Icon name="download" /> Export CSV
      </button>
      {error && (
        <Dialog title="Export" close={() => setError(null)}>
          <Failure error={error} />
        </Dialog>
      )}
    </>
  );
}

// -- figures from materialized views -----------------------------------------------------------------------------------

const FROM_TABLE = "blockchain.transactions";
const MOST_WALLETS = 100;
const HOURS = {
  view: "blockchain.transactions_by_hour",
  query: "SELECT network, hour, transactions, failed FROM blockchain.transactions_by_hour",
  instead: `SELECT network, date_trunc('hour', block_time) AS hour, count(*) AS transactions, count(*) FILTER (NOT success) AS failed FROM ${FROM_TABLE} GROUP BY ALL`,
};
const WALLETS = {
  view: "blockchain.wallets",
  query: "SELECT wallet, sent, last_time, networks FROM blockchain.wallets",
  instead: `SELECT from_address AS wallet, count(*) AS sent, max(block_time) AS last_time, count(DISTINCT network) AS networks FROM ${FROM_TABLE} GROUP BY ALL`,
};

interface Found {
  rows: Row[];
  /** The snapshots by which the view lags; null for figures of the table itself. */
  lag: number | null;
  at: number | null;
}

/** Return the snapshots by which a view lags; null if there is none, or none that the principal may see. */
async function lagOf(view: string, signal: AbortSignal): Promise<number | null> {
  try {
    const { materialized_views: views } = await get<{ materialized_views: { name: string; lag: number | null }[] }>("materialized-views", {}, signal);
    const known = views.find((each) => each.name === view);
    return known ? (known.lag ?? 0) : null;
  } catch (error) {
    if (error instanceof Problem && error.status === 403) return null;
    throw error;
  }
}

/**
 * Load figures from a view, or from the table if there is none. A principal that may not see views reads the table. So
 * does one that looks at a past snapshot: the view may have been behind then, or not there yet.
 */
async function figures(source: typeof HOURS, at: number | null, around: (query: string) => string, signal: AbortSignal): Promise<Found> {
  const lag = at === null ? await lagOf(source.view, signal) : null;
  const rows = await runSql({ sql: around(lag === null ? source.instead : source.query), version: at }, { signal });
  return { rows: Array.from({ length: rows.length }, (_, index) => rows.row(index)), lag, at };
}

function Source({ found, view }: { found: Found; view: string }) {
  return (
    <p class="dim under">
      {found.at !== null ? (
        <>
          Computed from <code>{FROM_TABLE}</code> at snapshot {found.at}.
        </>
      ) : found.lag === null ? (
        <>
          Computed from <code>{FROM_TABLE}</code> just now. A materialized view <code>{view}</code> would answer at once.
        </>
      ) : (
        <>
          From the materialized view <a href={routeTo(["views", view])}>{view}</a>
          {found.lag === 0 ? ", which is up to date" : `, as of ${counted(found.lag, "snapshot")} ago`}.
        </>
      )}
    </p>
  );
}

function Wallets({ at }: { at: number | null }) {
  const newest = useNewest(5000);
  const now = useNow();
  const found = useLoad((signal) => figures(WALLETS, at, (query) => `SELECT * FROM (${query}) ORDER BY sent DESC, wallet LIMIT ${MOST_WALLETS}`, signal), [at], at === null ? newest : 0);
  if (found.error && !found.data) return <Failure error={found.error} again={found.again} />;
  if (!found.data) return <Waiting lines={10} />;
  if (!found.data.rows.length) return <Empty title="There are no wallets yet." />;
  return (
    <>
      <div class="framed scroll" tabIndex={0} role="region" aria-label="Wallets">
        <table class="list">
          <thead>
            <tr>
              <th>Wallet</th>
              <th class="number">Sent</th>
              <th class="number">Networks</th>
              <th>Last</th>
            </tr>
          </thead>
          <tbody>
            {found.data.rows.map((each) => (
              <tr key={String(each["wallet"])}>
                <th scope="row">
                  <a class="hash" href={routeTo(["transactions", "list"], { wallet: String(each["wallet"]), at })}>
                    {String(each["wallet"])}
                  </a>
                </th>
                <td class="number">{count(Number(each["sent"]))}</td>
                <td class="number">{count(Number(each["networks"]))}</td>
                <td>{ago(parseTime(String(each["last_time"])), now)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Source found={found.data} view={WALLETS.view} />
    </>
  );
}

/** A bar beside its number, which says the same. */
function Bar({ share }: { share: number }) {
  return (
    <span class="track" aria-hidden="true">
      <i style={{ width: `${Math.round(share * 1000) / 10}%` }} />
    </span>
  );
}

function Networks({ at }: { at: number | null }) {
  const newest = useNewest(5000);
  const found = useLoad((signal) => get<{ networks: Network[] }>(`${BASE}networks`, { version: at }, signal), [at], at === null ? newest : 0);
  if (found.error && !found.data) return <Failure error={found.error} again={found.again} />;
  if (!found.data) return <Waiting lines={4} />;
  const most = Math.max(1, ...found.data.networks.map((each) => each.transactions));
  if (!found.data.networks.length) return <Empty title="There are no transactions yet." />;
  return (
    <ul class="bars-list networks" aria-label="Networks">
      {found.data.networks.map((each) => {
        const name = `${each.network}/${each.subnet}`;
        return (
          <li key={name}>
            <a href={routeTo(["transactions", "list"], { network: name, at })}>{name}</a>
            <Bar share={each.transactions / most} />
            <span class="number">{count(each.transactions)}</span>
          </li>
        );
      })}
    </ul>
  );
}

/** The figures that the service tells, in their order. */
const TOLD = ["total_transactions", "networks", "senders", "failed"];

function Statistics({ at }: { at: number | null }) {
  const newest = useNewest(5000);
  const fresh = at === null ? newest : 0;
  const stats = useLoad((signal) => get<Record<string, unknown>>(`${BASE}stats`, { version: at }, signal), [at], fresh);
  const days = useLoad((signal) => figures(HOURS, at, (query) => `SELECT CAST(date_trunc('day', hour) AS DATE) AS day, sum(transactions) AS transactions, sum(failed) AS failed FROM (${query}) GROUP BY 1 ORDER BY 1 DESC LIMIT 31`, signal), [at], fresh);
  const error = stats.error ?? days.error;
  const most = Math.max(1, ...(days.data?.rows ?? []).map((each) => Number(each["transactions"])));
  return (
    <>
      {error && <Failure error={error} again={stats.error ? stats.again : days.again} />}
      <dl class="figures">
        {TOLD.map((name) => (
          <Figure key={name} label={sentence(name.replaceAll("_", " "))} value={stats.data ? count(Number(stats.data[name] ?? 0)) : "–"} />
        ))}
      </dl>
      {!days.data && !days.error && <Waiting lines={8} />}
      {days.data && (
        <>
          <ul class="bars-list days" aria-label="Transactions a day">
            {days.data.rows.map((each) => {
              const [day, all, failed] = [String(each["day"]), Number(each["transactions"]), Number(each["failed"])];
              return (
                <li key={day}>
                  <span>
                    {day} {failed > 0 && <span class="dim">{count(failed)} failed</span>}
                  </span>
                  <Bar share={all / most} />
                  <span class="number">{count(all)}</span>
                </li>
              );
            })}
          </ul>
          <Source found={days.data} view={HOURS.view} />
        </>
      )}
    </>
  );
}
