/** Commits and jobs as they happen: one stream of events, which begins again after an interruption. */

import { ask, Problem } from "./api.ts";
import type { Job } from "./types.ts";

export type LiveState = "connecting" | "live" | "lost";

export interface Heard {
  state: LiveState;
  /** The newest snapshot that was heard of. */
  snapshot: number;
  /** When commits were heard of, in milliseconds; the last minutes only. */
  commits: number[];
}

/** The event of the window that tells that the service answers again. */
export const BACK = "quacklake:back";
const LONGEST = 8000;
const KEPT = 600_000;

/** Split a stream of events; the rest is an event that is not complete. */
export function parseEvents(text: string): { events: { kind: string; data: string }[]; rest: string } {
  const parts = text.split("\n\n");
  const rest = parts.pop() ?? "";
  const events = [];
  for (const part of parts) {
    let kind = "message";
    const data: string[] = [];
    for (const line of part.split("\n"))
      if (line.startsWith("event:")) kind = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).trim());
    if (data.length) events.push({ kind, data: data.join("\n") });
  }
  return { events, rest };
}

export class Live {
  heard: Heard;
  private readonly listeners = new Set<(heard: Heard) => void>();
  private readonly jobListeners = new Set<(job: Job) => void>();
  private readonly pipelineListeners = new Set<(pipeline: string) => void>();
  private readonly ended = new AbortController();

  constructor(
    snapshot: number,
    private readonly refused: () => void,
  ) {
    this.heard = { state: "connecting", snapshot, commits: [] };
    void this.listen();
  }

  /** Call a function whenever something was heard; returns how to stop. */
  subscribe(listener: (heard: Heard) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Call a function whenever a job begins or ends. */
  onJob(listener: (job: Job) => void): () => void {
    this.jobListeners.add(listener);
    return () => this.jobListeners.delete(listener);
  }

  /** Call a function with the name of a pipeline whenever a batch of it has ended. */
  onPipeline(listener: (pipeline: string) => void): () => void {
    this.pipelineListeners.add(listener);
    return () => this.pipelineListeners.delete(listener);
  }

  close(): void {
    this.ended.abort();
  }

  private tell(change: Partial<Heard>): void {
    this.heard = { ...this.heard, ...change };
    for (const listener of this.listeners) listener(this.heard);
  }

  private async listen(): Promise<void> {
    let wait = 250;
    while (!this.ended.signal.aborted) {
      try {
        const answer = await ask("events", {
          accept: "text/event-stream",
          query: { since: this.heard.snapshot },
          signal: this.ended.signal,
        });
        if (this.heard.state === "lost") dispatchEvent(new Event(BACK));
        this.tell({ state: "live" });
        wait = 250;
        await this.follow(answer.body!.getReader());
      } catch (error) {
        if (this.ended.signal.aborted) return;
        if (error instanceof Problem && error.status === 401) {
          this.refused();
          return;
        }
      }
      if (this.ended.signal.aborted) return;
      this.tell({ state: "lost" });
      await new Promise((done) => setTimeout(done, wait));
      wait = Math.min(LONGEST, wait * 2);
    }
  }

  private async follow(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const found = parseEvents(text + decoder.decode(value, { stream: true }));
      text = found.rest;
      const now = Date.now();
      let { snapshot, commits } = this.heard;
      for (const event of found.events) {
        if (event.kind === "commit") {
          snapshot = Math.max(snapshot, (JSON.parse(event.data) as { snapshot: number }).snapshot);
          commits = [...commits.filter((then) => now - then < KEPT), now].slice(-5000);
        } else if (event.kind === "job") {
          const job = JSON.parse(event.data) as Job;
          for (const listener of this.jobListeners) listener(job);
        } else if (event.kind === "pipeline") {
          const { pipeline } = JSON.parse(event.data) as { pipeline: string };
          for (const listener of this.pipelineListeners) listener(pipeline);
        }
      }
      if (snapshot !== this.heard.snapshot || commits !== this.heard.commits) this.tell({ snapshot, commits });
    }
  }
}
