/** Pipelines: what flows from where to where, how fast, how far behind, and what could not be read. */

import { useEffect, useRef, useState } from "preact/hooks";

import { ask, get, Problem } from "./api.ts";
import { BOX, drawing, lasting, perSecond, rateOf, stateOf, type Described, type Listed, type Node } from "./flow.ts";
import { ago, count, counted, moment, parseTime } from "./format.ts";
import { useLoad, useNewest, useNow, useSession } from "./hooks.ts";
import { Letters } from "./letters.tsx";
import { routeTo, type Route } from "./route.ts";
import "./streams.css";
import { Card, Empty, Failure, Figure, Icon, sentence, Waiting } from "./ui.tsx";

const SAID = { running: "Running", failed: "Failed", stopped: "Stopped", waiting: "Waits for a process" } as const;
const BARS = 40;

export function StreamsPage({ route }: { route: Route }) {
  const chosen = route.path[1];
  const newest = useNewest(2000);
  const turn = useNow(5000).getTime();
  const list = useLoad((signal) => get<{ pipelines: Listed[] }>("pipelines", {}, signal), [], `${newest} ${turn}`);
  const hidden = list.error instanceof Problem && list.error.status === 403;
  const pipelines = list.data?.pipelines ?? [];
  const shown = chosen === undefined ? pipelines : pipelines.filter((each) => each.name === chosen);
  return (
    <article class="streams">
      <header class="title">
        {chosen !== undefined && (
          <p class="crumb">
            <a href={routeTo(["streams"])}>Streams</a>
          </p>
        )}
        <h1>{chosen ?? "Streams"}</h1>
        {chosen === undefined && <p class="dim">Pipelines read sources and write sinks. Each row arrives once.</p>}
      </header>
      {hidden && <Empty title="Streams are hidden from you.">They are for those who may see the whole lake.</Empty>}
      {list.error && !hidden && <Failure error={list.error} again={list.again} />}
      {!list.data && !list.error && <Waiting lines={6} />}
      {list.data && pipelines.length === 0 && (
        <Empty title="There are no pipelines yet.">
          Write one in YAML and run <code>quacklake pipeline apply FILE</code>, or make one in SQL with <code>CREATE SINK … AS SELECT</code>.
        </Empty>
      )}
      {list.data && pipelines.length > 0 && shown.length === 0 && (
        <Empty title="There is no such pipeline.">
          <a href={routeTo(["streams"])}>See all pipelines</a>
        </Empty>
      )}
      {shown.map((each) => (
        <Pipeline key={each.name} name={each.name} whole={chosen !== undefined} fresh={`${newest} ${turn}`} />
      ))}
    </article>
  );
}

/** Return a number that changes when a batch of a pipeline has ended, once in a while at most. */
function useBatches(name: string, every = 700): number {
  const { live } = useSession();
  const [turn, setTurn] = useState(0);
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useEffect(() => {
    const end = live.onPipeline((heard) => {
      if (heard !== name || timer.current !== null) return;
      timer.current = setTimeout(() => {
        timer.current = null;
        setTurn((before) => before + 1);
      }, every);
    });
    return () => {
      end();
      if (timer.current !== null) clearTimeout(timer.current);
      timer.current = null;
    };
  }, [live, name]);
  return turn;
}

function Pipeline({ name, whole, fresh }: { name: string; whole: boolean; fresh: string }) {
  const batches = useBatches(name);
  const found = useLoad((signal) => get<Described>(`pipelines/${encodeURIComponent(name)}`, {}, signal), [name], `${fresh} ${batches}`);
  const pipeline = found.data;
  const failed = pipeline?.run?.error;
  return (
    <section class="pipeline" aria-label={`Pipeline ${name}`} data-pipeline={name} data-checkpoint={pipeline?.checkpoint ?? ""}>
      <Card title={name} aside={pipeline && <Actions pipeline={pipeline} again={found.again} />}>
        {found.error && <Failure error={found.error} again={found.again} />}
        {!pipeline && !found.error && <Waiting lines={5} />}
        {pipeline && (
          <>
            {failed && !pipeline.running && <Failure error={new Problem(0, failed.code, failed.detail, failed.hint)} />}
            <Figures pipeline={pipeline} />
            <Graph pipeline={pipeline} />
            <Durations pipeline={pipeline} />
            {whole && <Positions pipeline={pipeline} />}
          </>
        )}
      </Card>
      {pipeline && whole && pipeline.dead_letters !== null && <Letters pipeline={pipeline} again={found.again} />}
    </section>
  );
}

function Actions({ pipeline, again }: { pipeline: Described; again: () => void }) {
  const { facts } = useSession();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const state = stateOf(pipeline);
  const act = (verb: "start" | "stop") => {
    setBusy(true);
    setError(null);
    ask(`pipelines/${encodeURIComponent(pipeline.name)}/${verb}`, { method: "POST" })
      .then(again, (failed: unknown) => setError(failed instanceof Error ? failed : new Error(String(failed))))
      .finally(() => setBusy(false));
  };
  const elsewhere = pipeline.engine === "spark";
  return (
    <span class="buttons">
      <span class={`state ${state}`}>
        <span class="dot" aria-hidden="true" />
        {SAID[state]}
        {state === "running" && !pipeline.here && <span class="dim"> in another process</span>}
      </span>
      {error && <span class="bad" role="alert">{sentence(error.message)}</span>}
      {facts.role === "admin" && state === "running" && (
        <button type="button" class="stop" disabled={busy || pipeline.state === "stopped"} onClick={() => act("stop")}>
          <Icon name="stop" /> {pipeline.state === "stopped" ? "Stopping" : "Stop"}
        </button>
      )}
      {facts.role === "admin" && state !== "running" && !elsewhere && (
        <button type="button" class="start" disabled={busy} onClick={() => act("start")}>
          <Icon name="play" /> Start
        </button>
      )}
      {facts.role === "admin" && state !== "running" && elsewhere && <code class="dim">quacklake pipeline start {pipeline.name}</code>}
    </span>
  );
}

function Figures({ pipeline }: { pipeline: Described }) {
  const now = useNow(2000);
  const rate = rateOf(pipeline, now.getTime());
  const last = pipeline.run?.recent.at(-1);
  const sequence = pipeline.checkpoints.at(-1)?.sequence;
  return (
    <dl class="figures">
      <Figure label="Rows a second" value={perSecond(rate)} note={pipeline.here ? "over a minute" : rate === null ? undefined : "at the last checkpoints"} />
      <Figure
        label="Behind"
        value={pipeline.lag === null ? "–" : count(pipeline.lag)}
        note={pipeline.lag === null ? "not known" : pipeline.lag_seconds === null ? undefined : pipeline.lag === 0 ? "caught up" : `the first for ${lasting(pipeline.lag_seconds)}`}
      />
      <Figure label="Last batch" value={last ? `${count(Math.round(last.milliseconds))} ms` : "–"} note={last ? counted(last.rows, "row") : undefined} />
      <Figure label="Checkpoint" value={pipeline.checkpoint === null ? "–" : `#${count(pipeline.checkpoint)}`} note={pipeline.checkpoint_time ? ago(parseTime(pipeline.checkpoint_time), now) : "none yet"} />
      {sequence != null && <Figure label="Sequence" value={count(sequence)} note="of the stream" />}
    </dl>
  );
}

function Graph({ pipeline }: { pipeline: Described }) {
  const { nodes, lines, width, height } = drawing(pipeline);
  const middle = (node: Node) => node.y + BOX.height / 2;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`Graph of ${pipeline.name}`}>
      <svg class="flow" viewBox={`-4 -4 ${width + 8} ${height + 8}`} style={{ width: `${width + 8}px`, height: `${height + 8}px` }}>
        {lines.map(({ from, to, dashed }) => {
          const [left, right] = [from.x + BOX.width, to.x];
          const half = (left + right) / 2;
          // a line of what is no row goes around the query
          const path = dashed
            ? `M${from.x + BOX.width / 2},${from.y + BOX.height} V${middle(to)} H${right}`
            : `M${left},${middle(from)} C${half},${middle(from)} ${half},${middle(to)} ${right},${middle(to)}`;
          return <path key={to.id} d={path} class={`line${dashed ? " dashed" : ""}${pipeline.running ? " moves" : ""}`} />;
        })}
        {nodes.map((node) => (
          <Box key={node.id} node={node} pipeline={pipeline} />
        ))}
      </svg>
    </div>
  );
}

function Box({ node, pipeline }: { node: Node; pipeline: Described }) {
  const cut = (text: string, most: number) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const drawn = (
    <>
      <title>{`${node.title} (${node.note})`}</title>
      <rect width={BOX.width} height={BOX.height} rx="9" />
      <text x="14" y="24" class="name">
        {cut(node.title, 21)}
      </text>
      <text x="14" y="43" class="note">
        {cut(node.note, 27)}
      </text>
    </>
  );
  const at = { class: `node ${node.kind}`, transform: `translate(${node.x},${node.y})` };
  if (node.leads === null) return <g {...at}>{drawn}</g>;
  const href = "table" in node.leads ? routeTo(["tables", node.leads.table], { tab: "preview" }) : routeTo(["streams", pipeline.name]);
  return (
    <a {...at} href={href} aria-label={`${node.title}, ${node.note}`}>
      {drawn}
    </a>
  );
}

function Durations({ pipeline }: { pipeline: Described }) {
  const recent = (pipeline.run?.recent ?? []).slice(-BARS);
  if (!recent.length)
    return pipeline.running ? (
      <p class="dim small">Batches are timed where they run: this pipeline runs in another process.</p>
    ) : null;
  const most = Math.max(...recent.map((batch) => batch.milliseconds));
  return (
    <figure class="durations">
      <div class="bars" role="img" aria-label={`The last ${counted(recent.length, "batch", "batches")} took at most ${count(Math.round(most))} ms`}>
        {recent.map((batch) => (
          <i key={batch.checkpoint} class={batch.rejected ? "rejected" : ""} style={{ height: `${Math.max(4, (batch.milliseconds / most) * 100)}%` }} title={`#${batch.checkpoint}: ${counted(batch.rows, "row")} in ${Math.round(batch.milliseconds)} ms${batch.rejected ? `, ${counted(batch.rejected, "dead letter")}` : ""}`} />
        ))}
      </div>
      <figcaption class="dim">
        <span>Duration of the last {counted(recent.length, "batch", "batches")}</span>
        <span>at most {count(Math.round(most))} ms</span>
      </figcaption>
    </figure>
  );
}

function Positions({ pipeline }: { pipeline: Described }) {
  return (
    <>
      {pipeline.query !== null && (
        <>
          <h3>Query</h3>
          <pre class="code query" tabIndex={0}>{pipeline.query}</pre>
        </>
      )}
      <h3>Last checkpoints</h3>
      {pipeline.checkpoints.length === 0 && <p class="dim">There are none yet: the pipeline has not committed anything.</p>}
      <ol class="positions">
        {pipeline.checkpoints.toReversed().map((each) => (
          <li key={each.checkpoint}>
            <b>#{each.checkpoint}</b>
            <time dateTime={each.checkpoint_time}>{moment(parseTime(each.checkpoint_time))}</time>
            <span>{each.sequence === null ? "" : `up to sequence ${count(each.sequence)}`}</span>
          </li>
        ))}
      </ol>
      {pipeline.position !== null && (
        <details>
          <summary>Position</summary>
          <pre class="code" tabIndex={0}>{pipeline.position}</pre>
        </details>
      )}
    </>
  );
}
