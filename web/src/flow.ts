/** Figures of pipelines, and how a pipeline is drawn. */

import { parseTime, quoted } from "./format.ts";

export interface Batch {
  checkpoint: number;
  rows: number;
  rejected: number;
  milliseconds: number;
  /** When it ended, in seconds. */
  ended: number;
}

export interface Listed {
  name: string;
  engine: string;
  source: string;
  sinks: string[];
  state: string;
  running: boolean;
}

export interface Described extends Omit<Listed, "sinks"> {
  here: boolean;
  reads: string | null;
  query: string | null;
  every_seconds: number;
  dead_letters: string | null;
  letters: number;
  letters_pending: number;
  sinks: { name: string; type: string; mode: string; where: string | null; writes: string | null }[];
  checkpoint: number | null;
  checkpoint_time: string | null;
  finished: boolean | null;
  position: string | null;
  checkpoints: { checkpoint: number; checkpoint_time: string; sequence: number | null }[];
  lag: number | null;
  lag_seconds: number | null;
  run: {
    batches: number;
    rows: number;
    rejected: number;
    restarts: number;
    recent: Batch[];
    error: { code: string; detail: string; hint: string | null } | null;
  } | null;
}

const WINDOW = 60;

/** Return how many rows or messages pass in a second: of the last minute, or between the checkpoints that are kept. */
export function rateOf(pipeline: Described, now: number): number | null {
  if (!pipeline.running) return null;
  const recent = pipeline.here ? (pipeline.run?.recent ?? []) : [];
  const last = recent.filter((batch) => now / 1000 - batch.ended < WINDOW);
  if (pipeline.here) return last.reduce((sum, batch) => sum + batch.rows, 0) / WINDOW;
  const known = pipeline.checkpoints.filter((each) => each.sequence !== null);
  const first = known[0];
  const newest = known.at(-1);
  if (first === undefined || newest === undefined || first === newest) return null;
  const seconds = (parseTime(newest.checkpoint_time).getTime() - parseTime(first.checkpoint_time).getTime()) / 1000;
  return seconds > 0 ? (newest.sequence! - first.sequence!) / seconds : null;
}

/** Return a rate as people read it. */
export function perSecond(rate: number | null): string {
  if (rate === null) return "–";
  return rate >= 100 ? Math.round(rate).toLocaleString("en-US") : rate >= 1 || rate === 0 ? String(Math.round(rate * 10) / 10) : rate.toFixed(2);
}

/** Return a time span as people read it. */
export function lasting(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

export type State = "running" | "failed" | "stopped" | "waiting";

/** Return how a pipeline is: one that is wanted and that nobody runs waits. */
export function stateOf(pipeline: Pick<Described, "running" | "state" | "run" | "here">): State {
  if (pipeline.running) return "running";
  if (pipeline.run?.error) return "failed";
  return pipeline.state === "running" ? "waiting" : "stopped";
}

export interface Node {
  id: string;
  kind: "source" | "query" | "sink" | "letters";
  title: string;
  note: string;
  /** Where the node leads to: a table of the lake, or the dead letters. */
  leads: { table: string } | { letters: true } | null;
  x: number;
  y: number;
}

export const BOX = { width: 208, height: 56, across: 64, down: 18 };

/** Return the boxes of a pipeline and the lines between them, and how large all of it is. */
export function drawing(pipeline: Described): { nodes: Node[]; lines: { from: Node; to: Node; dashed: boolean }[]; width: number; height: number } {
  const right = pipeline.sinks.length + (pipeline.dead_letters === null ? 0 : 1);
  const height = right * BOX.height + (right - 1) * BOX.down;
  const middle = (height - BOX.height) / 2;
  const column = (index: number) => index * (BOX.width + BOX.across);
  const source: Node = {
    id: "source",
    kind: "source",
    title: pipeline.reads ?? pipeline.source,
    note: pipeline.source,
    leads: pipeline.source === "lake" && pipeline.reads ? { table: addressed(pipeline.reads) } : null,
    x: column(0),
    y: middle,
  };
  const query: Node = { id: "query", kind: "query", title: pipeline.query === null ? "every row" : short(pipeline.query), note: pipeline.engine === "spark" ? "query on Spark" : "query", leads: null, x: column(1), y: middle };
  const sinks = pipeline.sinks.map<Node>((sink, index) => ({
    id: `sink ${sink.name}`,
    kind: "sink",
    title: sink.writes ?? sink.name,
    note: `${sink.type}, ${sink.mode}${sink.where ? `, ${sink.where}` : ""}`,
    leads: sink.type === "lake" && sink.writes ? { table: addressed(sink.writes) } : null,
    x: column(2),
    y: index * (BOX.height + BOX.down),
  }));
  const lines = [{ from: source, to: query, dashed: false }, ...sinks.map((sink) => ({ from: query, to: sink, dashed: false }))];
  const nodes = [source, query, ...sinks];
  if (pipeline.dead_letters !== null) {
    const letters: Node = { id: "letters", kind: "letters", title: pipeline.dead_letters, note: `${pipeline.letters.toLocaleString("en-US")} dead letter${pipeline.letters === 1 ? "" : "s"}`, leads: { letters: true }, x: column(2), y: height - BOX.height };
    nodes.push(letters);
    lines.push({ from: source, to: letters, dashed: true });
  }
  return { nodes, lines, width: column(2) + BOX.width, height };
}

/** Return the name of a table as addresses have it; one without a schema is in main. */
function addressed(name: string): string {
  return /^[^".]+$/.test(name) ? `main.${name}` : /^[^".]+\.[^".]+$/.test(name) ? name : `main.${quoted(name)}`;
}

function short(query: string): string {
  return query.replace(/\s+/g, " ").trim();
}
