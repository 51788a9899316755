/** The jobs of a token: what runs, how far it is, and what came out. */

import { useEffect, useState } from "preact/hooks";

import { ask, get } from "./api.ts";
import { ago, count, moment } from "./format.ts";
import { useLoad, useNow, useSession } from "./hooks.ts";
import { Report } from "./jobs.tsx";
import "./pages.css";
import { routeTo } from "./route.ts";
import type { Job } from "./types.ts";
import { Dialog, Empty, Failure, sentence, Waiting } from "./ui.tsx";

const STATES: Record<string, [string, string]> = {
  waiting: ["waits", ""],
  running: ["runs", "busy"],
  done: ["done", "good"],
  failed: ["failed", "bad"],
  cancelled: ["cancelled", "warn"],
};
/** How often a job that runs is looked at. */
const LOOK = 500;

export function JobsPage() {
  const { live } = useSession();
  const now = useNow(1000);
  const [turn, setTurn] = useState(0);
  const found = useLoad((signal) => get<{ jobs: Job[] }>("jobs", {}, signal), [], turn);
  const [error, setError] = useState<Error | null>(null);
  const [chosen, setChosen] = useState<Job | null>(null);
  const jobs = found.data?.jobs ?? [];
  const busy = jobs.some((each) => each.state === "waiting" || each.state === "running");
  useEffect(() => live.onJob(() => setTurn((before) => before + 1)), [live]);
  useEffect(() => {
    if (!busy) return;
    const timer = setTimeout(() => setTurn((before) => before + 1), LOOK);
    return () => clearTimeout(timer);
  }, [busy, turn, found.data]);
  const cancel = (id: string) => {
    setError(null);
    ask(`jobs/${id}`, { method: "DELETE" }).then(
      () => setTurn((before) => before + 1),
      (failed: unknown) => setError(failed instanceof Error ? failed : new Error(String(failed))),
    );
  };
  return (
    <article>
      <header class="title">
        <h1>Jobs</h1>
        <p class="dim">Work that takes longer than a request, of your token. The service remembers the last ones until it stops.</p>
      </header>
      {(found.error ?? error) && <Failure error={(found.error ?? error)!} again={found.again} />}
      {!found.data && !found.error && <Waiting lines={5} />}
      {found.data && !jobs.length && (
        <Empty title="Nothing was started yet.">
          <a href={routeTo(["overview"])}>Maintain the lake</a> or <a href={routeTo(["views"])}>refresh a view</a>.
        </Empty>
      )}
      {jobs.length > 0 && (
        <div class="framed scroll" tabIndex={0} role="region" aria-label="Jobs">
          <table class="list jobs">
            <thead>
              <tr>
                <th>Job</th>
                <th>State</th>
                <th>Progress</th>
                <th>Began</th>
                <th>
                  <span class="unseen">Do</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {jobs.map((each) => {
                const [said, colour] = STATES[each.state] ?? [each.state, ""];
                const began = new Date(each.began * 1000);
                const going = each.state === "waiting" || each.state === "running";
                return (
                  <tr key={each.id}>
                    <th scope="row">
                      {sentence(each.kind.replaceAll("_", " "))} {each.dry_run && <span class="tag">dry run</span>}
                    </th>
                    <td>
                      <span class={`stand ${colour}`}>{each.cancelling ? "ends after this step" : said}</span>
                    </td>
                    <td class="wrap">
                      {going ? (
                        <>
                          <progress {...(each.total ? { value: each.done, max: each.total } : {})} aria-label={`Progress of ${each.kind}`} />
                          <span class="dim small">
                            {each.stage ? sentence(each.stage.replaceAll("_", " ")) : "Starting"}
                            {each.total ? ` · ${count(each.done)} of ${count(each.total)}` : ""}
                          </span>
                        </>
                      ) : each.error ? (
                        <span>{sentence(each.error.detail)}</span>
                      ) : (
                        <span class="dim">–</span>
                      )}
                    </td>
                    <td>
                      <time title={moment(began)}>{ago(began, now)}</time>
                    </td>
                    <td>
                      {going ? (
                        <button type="button" class="cancel" disabled={each.cancelling} aria-label={`Cancel ${each.kind}`} onClick={() => cancel(each.id)}>
                          Cancel
                        </button>
                      ) : (
                        <button type="button" class="quiet look" aria-label={`Result of ${each.kind}`} onClick={() => setChosen(each)}>
                          Result
                        </button>
                      )}
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      {chosen && (
        <Dialog title={sentence(chosen.kind.replaceAll("_", " "))} close={() => setChosen(null)}>
          {chosen.error ? (
            <>
              <p>{sentence(chosen.error.detail)}</p>
              {chosen.error.hint && <p class="dim">{sentence(chosen.error.hint)}</p>}
            </>
          ) : (
            <Report value={chosen.result} />
          )}
        </Dialog>
      )}
    </article>
  );
}
