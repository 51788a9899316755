/** Streams at a glance: which run, and how far each is behind. */

import { get, Problem } from "./api.ts";
import { lasting, stateOf, type Described, type Listed } from "./flow.ts";
import { count } from "./format.ts";
import { useLoad, useNewest, useNow } from "./hooks.ts";
import "./look.css";
import { routeTo } from "./route.ts";
import { Card } from "./ui.tsx";

const MOST = 5;
const SAID = { running: "runs", failed: "failed", stopped: "stopped", waiting: "waits for a process" } as const;

/** Load the first pipelines; none for those who may not see them, and for a lake without. */
async function loadPipelines(signal: AbortSignal): Promise<{ shown: Described[]; more: number }> {
  try {
    const { pipelines } = await get<{ pipelines: Listed[] }>("pipelines", {}, signal);
    const shown = await Promise.all(pipelines.slice(0, MOST).map((each) => get<Described>(`pipelines/${encodeURIComponent(each.name)}`, {}, signal)));
    return { shown, more: Math.max(0, pipelines.length - MOST) };
  } catch (error) {
    if (error instanceof Problem && error.status === 403) return { shown: [], more: 0 };
    throw error;
  }
}

export function Lags() {
  const newest = useNewest(5000);
  const turn = useNow(10_000).getTime();
  const found = useLoad(loadPipelines, [], `${newest} ${turn}`);
  if (!found.data?.shown.length) return null;
  return (
    <Card title="Streams" aside={<a href={routeTo(["streams"])}>{found.data.more ? `and ${count(found.data.more)} more` : "All streams"}</a>}>
      <ul class="lags">
        {found.data.shown.map((each) => (
          <li key={each.name}>
            <a href={routeTo(["streams", each.name])}>{each.name}</a>
            <span class={`state ${stateOf(each)}`}>{SAID[stateOf(each)]}</span>
            <span class="dim">{behind(each)}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function behind({ lag, lag_seconds: seconds }: Described): string {
  if (lag === null) return "lag not known";
  if (lag === 0) return "caught up";
  return `${count(lag)} behind${seconds === null ? "" : `, ${lasting(seconds)}`}`;
}
