/** The page of a demo that breaks its parts, with what was published, committed, doubled and lost beside it. */

import { useState } from "preact/hooks";

import { ask, get } from "./api.ts";
import { count, counted } from "./format.ts";
import { useLoad, useNewest, useNow, useSession } from "./hooks.ts";
import "./streams.css";
import { Card, Failure, Figure, Waiting } from "./ui.tsx";

interface Chaos {
  blows: { id: string; title: string; about: string; struck: number }[];
  published: number;
  running: boolean;
  sinks: { sink: string; committed: number; doubled: number; lost: number }[];
}

export function ChaosPage() {
  const { facts } = useSession();
  const newest = useNewest();
  const turn = useNow(1000).getTime();
  const found = useLoad((signal) => get<Chaos>("chaos", {}, signal), [], `${newest} ${turn}`);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState<string | null>(null);
  const strike = (id: string) => {
    setBusy(id);
    setError(null);
    ask(`chaos/${encodeURIComponent(id)}`, { method: "POST" })
      .then(found.again, (failed: unknown) => setError(failed instanceof Error ? failed : new Error(String(failed))))
      .finally(() => setBusy(null));
  };
  const chaos = found.data;
  return (
    <article class="chaos">
      <header class="title">
        <h1>Chaos</h1>
        <p class="dim">Break something. It comes back by itself, and no message is lost or comes twice.</p>
      </header>
      {error && <Failure error={error} />}
      {found.error && <Failure error={found.error} again={found.again} />}
      {!chaos && !found.error && <Waiting lines={6} />}
      {chaos && (
        <>
          <div class="blows">
            {chaos.blows.map((blow) => (
              <Card key={blow.id} title={blow.title} class="blow" aside={blow.struck > 0 && <span class="dim">{counted(blow.struck, "time")}</span>}>
                <p>{blow.about}</p>
                {facts.role === "admin" && (
                  <button type="button" data-blow={blow.id} disabled={busy !== null} onClick={() => strike(blow.id)}>
                    Break it
                  </button>
                )}
              </Card>
            ))}
          </div>
          <Card title="What became of the messages" aside={<span class={`state ${chaos.running ? "running" : "stopped"}`}>{chaos.running ? "The driver runs" : "The driver is down"}</span>}>
            <dl class="figures">
              <Figure label="Published" value={count(chaos.published)} />
            </dl>
            <div class="scroll" tabIndex={0} role="region" aria-label="Counts of each sink">
            <table>
              <thead>
                <tr>
                  <th scope="col">Sink</th>
                  <th scope="col">Committed</th>
                  <th scope="col">To come</th>
                  <th scope="col">Doubled</th>
                  <th scope="col">Lost</th>
                </tr>
              </thead>
              <tbody>
                {chaos.sinks.map((sink) => (
                  <tr key={sink.sink} data-sink={sink.sink}>
                    <th scope="row">{sink.sink}</th>
                    <td class="committed">{count(sink.committed)}</td>
                    <td>{count(Math.max(0, chaos.published - sink.committed))}</td>
                    <td class={sink.doubled ? "doubled wrong" : "doubled zero"}>{count(sink.doubled)}</td>
                    <td class={sink.lost ? "lost wrong" : "lost zero"}>{count(sink.lost)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
            </div>
          </Card>
        </>
      )}
    </article>
  );
}
