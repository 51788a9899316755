/** Jobs: first what would happen, then doing it, with progress. */

import { useEffect, useState } from "preact/hooks";

import { ask, get } from "./api.ts";
import { bytes, count } from "./format.ts";
import type { Job } from "./types.ts";
import { Dialog, Failure, Icon, sentence, Waiting } from "./ui.tsx";

const LOOK = 250;

/** Run a job to its end, and tell of it on the way. Throws when it fails. */
export async function runJob(kind: string, given: Record<string, unknown>, dryRun: boolean, told: (job: Job) => void, signal: AbortSignal, path?: string): Promise<Job> {
  const asked = path === undefined ? ask("jobs", { method: "POST", body: { kind, arguments: given, dry_run: dryRun } }) : ask(path, { method: "POST" });
  let job = (await (await asked).json()) as Job;
  for (;;) {
    signal.throwIfAborted();
    told(job);
    if (job.state === "done") return job;
    if (job.state === "cancelled") throw new Error("The job was cancelled.");
    if (job.state === "failed") throw new Error(job.error?.hint ? `${job.error.detail} — ${job.error.hint}` : (job.error?.detail ?? "The job failed."));
    await new Promise((done) => setTimeout(done, LOOK));
    job = await get<Job>(`jobs/${job.id}`, {}, signal);
  }
}

export interface Work {
  title: string;
  /** What the job is for, in a sentence. */
  about: string;
  kind: string;
  given: Record<string, unknown>;
  /** Some jobs have no dry run. */
  dry: boolean;
  /** What is known of the work without a dry run. */
  plan?: unknown;
  /** The route that starts the job, if it is one of its own. */
  path?: string;
  verb: string;
}

export function JobDialog({ work, close, done }: { work: Work; close: () => void; done: () => void }) {
  const [job, setJob] = useState<Job | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [stage, setStage] = useState<"looking" | "asked" | "doing" | "done">(work.dry ? "looking" : "asked");
  const [ended] = useState(() => new AbortController());
  const run = (dry: boolean, next: "asked" | "done") => {
    setError(null);
    runJob(work.kind, work.given, dry, setJob, ended.signal, work.path).then(
      () => {
        setStage(next);
        if (next === "done") done();
      },
      (failed: unknown) => ended.signal.aborted || setError(failed instanceof Error ? failed : new Error(String(failed))),
    );
  };
  useEffect(() => {
    if (work.dry) run(true, "asked");
    return () => ended.abort();
  }, []);
  return (
    <Dialog title={work.title} close={close}>
      <p>{work.about}</p>
      {error && <Failure error={error} />}
      {stage === "looking" && !error && <Waiting lines={3} label="Looking at what would happen" />}
      {stage === "asked" && (job || work.plan !== undefined) && (
        <>
          <h3>This would happen</h3>
          <Report value={job ? job.result : work.plan} />
        </>
      )}
      {stage === "doing" && !error && <Progress job={job} />}
      {stage === "done" && job && (
        <>
          <h3 class="good">
            <Icon name="check" /> Done
          </h3>
          <Report value={job.result} />
        </>
      )}
      <div class="buttons">
        <button type="button" onClick={close}>
          {stage === "done" ? "Close" : "Cancel"}
        </button>
        {stage !== "done" && (
          <button
            type="button"
            class="primary"
            disabled={stage !== "asked"}
            onClick={() => {
              setJob(null);
              setStage("doing");
              run(false, "done");
            }}
          >
            {work.verb}
          </button>
        )}
      </div>
    </Dialog>
  );
}

function Progress({ job }: { job: Job | null }) {
  const total = job?.total ?? 0;
  return (
    <div class="progress">
      <progress {...(total ? { value: job!.done, max: total } : {})} aria-label="Progress" />
      <p class="dim">
        {job?.stage ? sentence(job.stage.replaceAll("_", " ")) : "Starting"}
        {total > 0 && ` · ${count(job!.done)} of ${count(total)}`}
      </p>
    </div>
  );
}

/** Return the facts of a report that say something; lists become their length. */
export function reportLines(value: unknown, path = ""): [string, string][] {
  if (value === null || value === undefined || typeof value !== "object") return path ? [[path, said(path, value)]] : [];
  if (Array.isArray(value)) {
    if (value.every((each) => each === null || typeof each !== "object")) return value.length ? [[path, value.length > 8 ? `${count(value.length)}` : value.join(", ")]] : [];
    return value.flatMap((each) => reportLines(each, path));
  }
  return Object.entries(value).flatMap(([name, each]) => {
    if (name === "dry_run" || each === null || each === 0 || each === false || name === "state") return [];
    return reportLines(each, name.replaceAll("_", " "));
  });
}

function said(name: string, value: unknown): string {
  if (typeof value === "number") return name.includes("bytes") ? bytes(value) : Number.isInteger(value) ? count(value) : value.toFixed(3);
  return String(value);
}

export function Report({ value }: { value: unknown }) {
  const lines = reportLines(value);
  if (!lines.length) return <p class="dim">Nothing to do.</p>;
  return (
    <dl class="report">
      {lines.slice(0, 40).map(([name, text], index) => (
        <div key={index}>
          <dt>{name}</dt>
          <dd>{text}</dd>
        </div>
      ))}
    </dl>
  );
}
