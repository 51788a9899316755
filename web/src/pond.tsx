/** A pond: its tree, what a node is and was, and its series as charts. */

import { useState } from "preact/hooks";

import { get } from "./api.ts";
import { bytes, count, moment } from "./format.ts";
import { replaceRoute, useLoad, useNewest } from "./hooks.ts";
import "./pond.css";
import { routeTo, type Route } from "./route.ts";
import SeriesCharts from "./series.tsx";
import { listOf } from "./span.ts";
import { Empty, Failure, Figure, Icon, Waiting, type IconName } from "./ui.tsx";

export interface PondNode {
  path: string;
  type: string;
  looks_like: string;
  size: number | null;
  rows: number | null;
  version: number;
  changed: string;
}

interface NodeFacts {
  path: string;
  type: string;
  rows?: number | null;
  size_bytes?: number | null;
  versions?: number;
  columns?: string;
  min_event_time?: string;
  max_event_time?: string;
  factory?: string;
  config?: string;
  site?: { title: string; pages: string[]; url: string | null };
  history: { version: number; changed: string; rows: number | null; size: number | null; first: string | null; last: string | null }[];
  more_versions: number;
}

interface Nodes {
  nodes: PondNode[];
  next: string | null;
}

const PAGE = 500;
const MOST_VERSIONS = 200;

/** Return the directory of a path. */
export function parentOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}

/** Load the nodes of a directory. A name may have the characters of patterns, so that others come too: these go. */
async function load(directory: string, most: number, signal: AbortSignal): Promise<Nodes> {
  const base = directory === "/" ? "" : directory;
  const found = await get<Nodes>("pond/nodes", { pattern: `${base}/*`, limit: most }, signal);
  return { ...found, nodes: found.nodes.filter((each) => parentOf(each.path) === directory) };
}

function isSeries(node: { type: string; looks_like?: string }): boolean {
  return (node.looks_like ?? node.type) === "file:series";
}

function iconOf(node: PondNode): IconName {
  if (node.looks_like === "directory") return "folder";
  if (isSeries(node)) return "series";
  return node.looks_like === "file:table" ? "table" : "file";
}

export function PondPage({ route }: { route: Route }) {
  const chosen = route.path[1];
  return (
    <div class={chosen === undefined ? "tables" : "tables chosen"}>
      <aside class="tree pond-tree" aria-label="Nodes of the pond">
        <Directory path="/" chosen={chosen} route={route} />
      </aside>
      <div class="body">
        {chosen === undefined ? (
          <>
            <h1 class="unseen">Pond</h1>
            <Empty title="A pond is a tree of files, tables and series.">Choose a series to draw it, or another node to see its versions.</Empty>
          </>
        ) : (
          <NodePage key={chosen} path={chosen} route={route} />
        )}
      </div>
    </div>
  );
}

function Directory({ path, chosen, route }: { path: string; chosen: string | undefined; route: Route }) {
  const newest = useNewest(5000);
  const [most, setMost] = useState(PAGE);
  const found = useLoad((signal) => load(path, most, signal), [path, most], newest);
  if (found.error && !found.data) return <Failure error={found.error} again={found.again} />;
  if (!found.data) return <Waiting lines={3} />;
  if (!found.data.nodes.length) return <p class="dim none">Nothing is here.</p>;
  return (
    <ul>
      {found.data.nodes.map((node) => (
        <li key={node.path}>
          {node.looks_like === "directory" ? <Folder node={node} chosen={chosen} route={route} /> : <Leaf node={node} chosen={chosen} route={route} />}
        </li>
      ))}
      {found.data.next !== null && (
        <li>
          <button type="button" class="link" onClick={() => setMost(most + PAGE)}>
            Show more
          </button>
        </li>
      )}
    </ul>
  );
}

function Folder({ node, chosen, route }: { node: PondNode; chosen: string | undefined; route: Route }) {
  const inside = chosen !== undefined && chosen.startsWith(`${node.path}/`);
  const [open, setOpen] = useState(inside || parentOf(node.path) === "/");
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Icon name="folder" />
        <span>{node.path.slice(node.path.lastIndexOf("/") + 1)}</span>
        {node.type === "dynamic" && <span class="tag">computed</span>}
      </summary>
      {open && <Directory path={node.path} chosen={chosen} route={route} />}
    </details>
  );
}

function Leaf({ node, chosen, route }: { node: PondNode; chosen: string | undefined; route: Route }) {
  const also = listOf(route.query["with"]);
  const name = node.path.slice(node.path.lastIndexOf("/") + 1);
  const drawable = isSeries(node) && node.type !== "dynamic";
  const beside = also.includes(node.path);
  return (
    <span class="leaf">
      <a href={routeTo(["pond", node.path])} aria-current={node.path === chosen ? "true" : undefined}>
        <Icon name={iconOf(node)} />
        <span>{name}</span>
      </a>
      {drawable && chosen !== undefined && node.path !== chosen && (
        <label class="beside" title={`Draw ${name} too`}>
          <input
            type="checkbox"
            aria-label={`Draw ${name} too`}
            checked={beside}
            onChange={() => {
              const next = beside ? also.filter((each) => each !== node.path) : [...also, node.path];
              replaceRoute(routeTo(["pond", chosen], { ...route.query, with: next.length ? JSON.stringify(next) : null }));
            }}
          />
        </label>
      )}
    </span>
  );
}

function NodePage({ path, route }: { path: string; route: Route }) {
  const newest = useNewest(3000);
  const found = useLoad((signal) => get<NodeFacts>("pond/node", { path, limit: MOST_VERSIONS }, signal), [path], newest);
  const facts = found.data;
  if (found.error && !facts) return <Failure error={found.error} again={found.again} />;
  if (!facts) return <Waiting lines={8} />;
  const drawn = isSeries(facts) ? [path, ...listOf(route.query["with"]).filter((each) => each !== path)] : [];
  return (
    <article class="node">
      <header class="title">
        <p class="crumb">
          <a href={routeTo(["pond"])}>Pond</a> <span class="dim">{parentOf(path)}</span>
        </p>
        <h1>{path.slice(path.lastIndexOf("/") + 1)}</h1>
        {facts.site?.url && (
          <div class="actions">
            <a class="button" href={facts.site.url} rel="noopener noreferrer" target="_blank">
              <Icon name="link" /> Open the site
            </a>
          </div>
        )}
      </header>
      <dl class="figures">
        <Figure label="Kind" value={facts.type.replace(/^file:/, "")} note={facts.factory} />
        {facts.rows != null && <Figure label="Rows" value={count(facts.rows)} />}
        {facts.size_bytes != null && <Figure label="Size" value={bytes(facts.size_bytes)} />}
        <Figure label="Versions" value={count(facts.versions ?? facts.history.length)} />
      </dl>
      {drawn.length > 0 && <SeriesCharts paths={drawn} route={route} />}
      {facts.site && (
        <section class="site">
          <h2>A site: {facts.site.title}</h2>
          <p>
            {facts.site.pages.join(", ")}.{" "}
            {facts.site.url === null && (
              <span class="dim">
                It has no address yet: <code>pond site export</code> writes it to a folder, and <code>site_url</code> in this file says where it is.
              </span>
            )}
          </p>
        </section>
      )}
      {facts.config && (
        <section>
          <h2>Configuration</h2>
          <pre class="config" tabIndex={0}>
            {facts.config}
          </pre>
        </section>
      )}
      <Versions facts={facts} />
    </article>
  );
}

function Versions({ facts }: { facts: NodeFacts }) {
  if (!facts.history.length) return null;
  const timed = facts.history.some((each) => each.first !== null);
  const time = (text: string | null) => (text === null ? "–" : moment(new Date(text)));
  return (
    <section>
      <h2>Versions</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Versions">
        <table class="facts">
          <thead>
            <tr>
              <th class="number">Version</th>
              <th>Stored</th>
              <th class="number">Rows</th>
              <th class="number">Size</th>
              {timed && <th>First reading</th>}
              {timed && <th>Last reading</th>}
            </tr>
          </thead>
          <tbody>
            {facts.history.map((each) => (
              <tr key={each.version}>
                <td class="number">{each.version}</td>
                <td>{time(each.changed)}</td>
                <td class="number">{each.rows === null ? "–" : count(each.rows)}</td>
                <td class="number">{each.size === null ? "–" : bytes(each.size)}</td>
                {timed && <td>{time(each.first)}</td>}
                {timed && <td>{time(each.last)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {facts.more_versions > 0 && <p class="dim under">and {count(facts.more_versions)} older ones</p>}
    </section>
  );
}
