/** The frame of all pages: who is signed in, where one can go, and whether events still come. */

import { useEffect, useState } from "preact/hooks";

import { get, Problem, session } from "./api.ts";
import { ChaosPage } from "./chaos.tsx";
import { SessionContext, useHeard, useLoad, useNewest, useRoute, useSession, type Session } from "./hooks.ts";
import { Lazy, type LazyPage } from "./lazy.tsx";
import { Live } from "./live.ts";
import { morePages } from "./more.ts";
import { OverviewPage } from "./overview.tsx";
import { PacketPage } from "./packet.tsx";
import { routeTo, type Route } from "./route.ts";
import { SignIn } from "./signin.tsx";
import { SnapshotsPage } from "./snapshots.tsx";
import { StreamsPage } from "./streams.tsx";
import { TablesPage } from "./tables.tsx";
import { changeTheme } from "./theme.ts";
import type { LakeFacts, Names } from "./types.ts";
import { Empty, Icon, Waiting, type Drawing } from "./ui.tsx";

const PAGES: readonly { id: string; label: string; icon: Drawing }[] = [
  { id: "overview", label: "Overview", icon: "overview" },
  { id: "tables", label: "Tables", icon: "tables" },
  { id: "sql", label: "SQL", icon: "sql" },
  { id: "snapshots", label: "Snapshots", icon: "history" },
  { id: "streams", label: "Streams", icon: "streams" },
];
const SQL: LazyPage = { id: "sql", label: "SQL", icon: "sql", load: async () => (await import("./sql.tsx")).SqlPage };

/** A demo has a page to break it. */
const CHAOS = { id: "chaos", label: "Chaos", icon: "warning" } as const;

/** An address that signs in: a user of a lake, or an operator. */
const SIGNED = /^#(token|operator)=([^&]+)(?:&lake=([^&]+))?$/;
const TENANTS: LazyPage = { id: "tenants", label: "Tenants", icon: "key", load: async () => (await import("./tenants.tsx")).TenantsPage };

/** Take a token, and the lake that it is to open, from the address, where `quacklake serve` prints it, and out of sight. */
function takeToken(): void {
  const [, kind, given, lake] = SIGNED.exec(location.hash) ?? [];
  if (given === undefined) return;
  session.keep(decodeURIComponent(given), lake === undefined ? null : decodeURIComponent(lake), kind === "operator");
  history.replaceState(null, "", "#/");
}

export function App() {
  const [entered, setEntered] = useState<Session | null>(null);
  const [operates, setOperates] = useState(false);
  const [refused, setRefused] = useState<Error | "asked" | null>(null);

  const enter = async (): Promise<void> => {
    try {
      if (session.operator) {
        await get("tenants", { limit: 1 });
        setOperates(true);
        return;
      }
      const facts = await get<LakeFacts>("lake");
      const leave = () => {
        live.close();
        session.keep(null, null);
        setEntered(null);
        setRefused("asked");
      };
      const live = new Live(facts.snapshot, leave);
      setRefused(null);
      setEntered({ facts, live, leave });
    } catch (error) {
      const known = error instanceof Error ? error : new Error(String(error));
      const unknown = known instanceof Problem && known.status === 401 && session.token === null;
      if (known instanceof Problem && known.status === 401) session.keep(null, null);
      setRefused(unknown ? "asked" : known);
    }
  };

  useEffect(() => {
    takeToken();
    void enter();
    const changed = () => {
      if (!SIGNED.test(location.hash)) return;
      takeToken();
      void enter();
    };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);

  if (entered !== null)
    return (
      <SessionContext.Provider value={entered}>
        <Shell />
      </SessionContext.Provider>
    );
  if (operates)
    return (
      <OperatorShell
        leave={() => {
          session.keep(null, null);
          setOperates(false);
          setRefused("asked");
        }}
      />
    );
  if (refused === null)
    return (
      <main class="alone">
        <Waiting />
      </main>
    );
  return <SignIn error={refused === "asked" ? null : refused} enter={enter} />;
}

/** The frame of those who manage tenants. They have no lake, and so no other page. */
function OperatorShell({ leave }: { leave: () => void }) {
  const route = useRoute();
  useEffect(() => {
    document.title = "Tenants · Quacklake";
  }, []);
  return (
    <div class="shell">
      <header class="side">
        <a class="brand" href="#/">
          <Duck />
          Quacklake
        </a>
        <nav aria-label="Pages">
          <a href={routeTo(["tenants"])} aria-current="page">
            <Icon name="key" />
            <span>Tenants</span>
          </a>
        </nav>
        <div class="foot">
          <p class="who">
            <span class="role">operator</span>
          </p>
          <Buttons leave={leave} />
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        <Lazy page={TENANTS} route={route} />
      </main>
    </div>
  );
}

function Buttons({ leave }: { leave: () => void }) {
  return (
    <div class="row">
      <button type="button" class="quiet" aria-label="Change between light and dark" title="Light or dark" onClick={changeTheme}>
        <Icon name="theme" />
      </button>
      <button type="button" class="quiet" aria-label="Sign out" title="Sign out" onClick={leave}>
        <Icon name="leave" />
      </button>
    </div>
  );
}

function Shell() {
  const route = useRoute();
  const { facts, leave } = useSession();
  const page = route.path[0] ?? "overview";
  const pages = usePages();
  useEffect(() => {
    document.title = [route.path[1] ?? [...PAGES, ...morePages(facts.pages)].find((each) => each.id === page)?.label, "Quacklake"].filter(Boolean).join(" · ");
  }, [page, route.path[1]]);
  return (
    <div class="shell">
      <a class="skip" href="#content" onClick={(event) => (event.preventDefault(), document.getElementById("content")?.focus())}>
        Skip to the content
      </a>
      <header class="side">
        <a class="brand" href="#/">
          <Duck />
          Quacklake
        </a>
        <nav aria-label="Pages">
          {pages.map((each) => (
            <a key={each.id} href={routeTo([each.id])} aria-current={each.id === page ? "page" : undefined}>
              <Icon name={each.icon} />
              <span>{each.label}</span>
            </a>
          ))}
        </nav>
        <div class="foot">
          <LiveBadge />
          <p class="who" title={facts.principal}>
            <span class="name">{facts.catalog ?? facts.principal}</span>
            <span class="role">{facts.role}</span>
          </p>
          <Buttons leave={leave} />
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        <Page page={page} route={route} demo={facts.demo} />
      </main>
    </div>
  );
}

/** Return the pages that have something to show: a lake without a pond has no page for it. */
function usePages(): readonly { id: string; label: string; icon: Drawing }[] {
  const { facts } = useSession();
  const newest = useNewest(10_000);
  const names = useLoad((signal) => get<Names>("tables", {}, signal), [], newest);
  const tables = new Set(names.data?.tables ?? []);
  const more = morePages(facts.pages).filter((each) => (each.table === undefined || tables.has(each.table)) && (!each.admin || facts.role === "admin"));
  return [...PAGES, ...more, ...(facts.demo ? [CHAOS] : [])];
}

function Page({ page, route, demo }: { page: string; route: Route; demo: boolean }) {
  const { facts } = useSession();
  if (page === "overview") return <OverviewPage />;
  if (page === "tables") return <TablesPage route={route} />;
  if (page === "snapshots") return <SnapshotsPage />;
  if (page === "chaos" && demo) return <ChaosPage />;
  if (page === "row") return <PacketPage route={route} />;
  if (page === "streams") return <StreamsPage route={route} />;
  const lazy = [SQL, ...morePages(facts.pages)].find((each) => each.id === page && (!each.admin || facts.role === "admin"));
  if (lazy !== undefined) return <Lazy page={lazy} route={route} />;
  return (
    <Empty title="There is no such page.">
      <a href="#/">Go to the overview</a>
    </Empty>
  );
}

const SAID = { live: "Live", connecting: "Connecting", lost: "Reconnecting" } as const;

function LiveBadge() {
  const { state, snapshot } = useHeard();
  return (
    <p class={`live ${state}`} role="status" title={state === "live" ? "Every commit shows at once" : "The service does not answer; trying again"}>
      <span class="dot" />
      <span class="state">{SAID[state]}</span>
      <span class="dim">#{snapshot}</span>
    </p>
  );
}

export function Duck() {
  return <span class="duck" aria-hidden="true" />;
}
