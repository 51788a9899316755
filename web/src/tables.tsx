/** The tables and views of the lake, as a tree that can be searched. */

import { useMemo, useState } from "preact/hooks";

import { counted, type Reference } from "./format.ts";
import { useLoad, useNewest } from "./hooks.ts";
import { loadKnown, type Known } from "./names.ts";
import { routeTo, type Route } from "./route.ts";
import { TablePage } from "./table.tsx";
import { Empty, Failure, Icon, Waiting } from "./ui.tsx";

type Entry = Reference & { view: boolean };

function grouped(names: Known, search: string): [string, Entry[]][] {
  const wanted = search.trim().toLowerCase();
  const schemas = new Map<string, Entry[]>();
  const entries = [
    ...names.tables.map((each) => ({ ...each, view: false })),
    ...names.views.map((each) => ({ ...each, view: true })),
  ];
  for (const entry of entries) {
    if (wanted && !`${entry.schema}.${entry.own}`.toLowerCase().includes(wanted)) continue;
    schemas.set(entry.schema, [...(schemas.get(entry.schema) ?? []), entry]);
  }
  return [...schemas].sort(([one], [other]) => one.localeCompare(other));
}

export function TablesPage({ route }: { route: Route }) {
  const newest = useNewest();
  const names = useLoad(loadKnown, [], newest);
  const [search, setSearch] = useState("");
  const schemas = useMemo(() => (names.data ? grouped(names.data, search) : []), [names.data, search]);
  const chosen = route.path[1];
  const view = chosen !== undefined && (names.data?.views.some((each) => each.name === chosen) ?? false);
  const all = names.data ? names.data.tables.length + names.data.views.length : 0;
  return (
    <div class={chosen === undefined ? "tables" : "tables chosen"}>
      <aside class="tree" aria-label="Tables and views">
        <div class="search">
          <Icon name="search" />
          <input
            type="search"
            aria-label="Search tables"
            placeholder="Search tables"
            value={search}
            onInput={(event) => setSearch(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Escape") setSearch("");
              if (event.key === "Enter" && schemas[0]?.[1][0]) location.hash = routeTo(["tables", schemas[0][1][0].name]);
            }}
          />
        </div>
        {names.error && !names.data && <Failure error={names.error} again={names.again} />}
        {!names.data && !names.error && <Waiting lines={5} />}
        {names.data && schemas.length === 0 && (
          <p class="dim none">{all === 0 ? "There are no tables yet." : `No table matches “${search}”.`}</p>
        )}
        {schemas.map(([schema, entries]) => (
          <details open key={schema}>
            <summary>
              <span>{schema}</span>
              <span class="dim">{entries.length}</span>
            </summary>
            <ul>
              {entries.map((entry) => (
                <li key={entry.name}>
                  <a href={routeTo(["tables", entry.name])} aria-current={entry.name === chosen ? "true" : undefined}>
                    <Icon name={entry.view ? "view" : "table"} />
                    <span>{entry.own}</span>
                    {entry.view && <span class="tag">view</span>}
                  </a>
                </li>
              ))}
            </ul>
          </details>
        ))}
      </aside>
      <div class="body">
        {chosen !== undefined && !names.data && !names.error ? (
          <Waiting lines={8} /> // whether it is a table or a view is not known yet
        ) : chosen !== undefined ? (
          <TablePage key={chosen} name={chosen} view={view} route={route} />
        ) : (
          <>
          <h1 class="unseen">Tables</h1>
          <Empty title={names.data ? counted(all, "table and view", "tables and views") : "Tables"}>
            {all ? "Choose one to see its columns, rows, files and history." : <>Make one in <a href="#/sql">SQL</a>, or append rows with a client.</>}
          </Empty>
          </>
        )}
      </div>
    </div>
  );
}
