/** From a row to its packet: the commit that made it, the batch of the pipeline, and the message on the stream. */

import { get, tablePath } from "./api.ts";
import { count, moment, parseTime, splitName } from "./format.ts";
import { useLoad } from "./hooks.ts";
import { MessageBody, type Body } from "./letters.tsx";
import { routeTo, snapshotOf, type Route } from "./route.ts";
import "./streams.css";
import { Empty, Failure, sentence, Waiting } from "./ui.tsx";

interface Origin {
  table: string;
  row: number;
  made_in: number;
  commit: { snapshot_time: string; author?: string | null; commit_message?: string | null; description?: string | null } | null;
  batch: { pipeline: string; checkpoint: number; stream: string | null; first: number | null; last: number | null } | null;
  sequence: number | null;
  message: { subject: string; time: string; headers: string | null; body: Body } | null;
  why: string | null;
}

/** Return the address of the page of a row; null for what is no row id. */
export function rowAddress(table: string, id: unknown, at: number | null): string | null {
  return /^\d{1,19}$/.test(String(id)) ? routeTo(["row", table, String(id)], { at }) : null;
}

export function PacketPage({ route }: { route: Route }) {
  const [, table = "", row = ""] = route.path;
  const at = snapshotOf(route.query);
  const valid = table !== "" && /^\d{1,19}$/.test(row);
  const found = useLoad(async (signal) => (valid ? get<Origin>(tablePath(table, `/rows/${row}/origin`), { version: at }, signal) : null), [table, row, at]);
  const [schema, own] = splitName(table);
  if (!valid)
    return (
      <Empty title="There is no such row.">
        <a href={routeTo(["tables"])}>See the tables</a>
      </Empty>
    );
  const origin = found.data;
  return (
    <article class="packet narrow">
      <header class="title">
        <p class="crumb">
          <a href={routeTo(["tables"])}>Tables</a> <span class="dim">/ {schema} /</span> <a href={routeTo(["tables", table], { tab: "preview", at })}>{own}</a>
        </p>
        <h1>Row {count(Number(row))}</h1>
        <p class="dim">From the row back to the message that it was made of{at === null ? "" : `, at snapshot ${at}`}.</p>
      </header>
      {found.error && <Failure error={found.error} again={found.again} />}
      {!origin && !found.error && <Waiting lines={6} />}
      {origin && <Steps origin={origin} />}
    </article>
  );
}

function Steps({ origin }: { origin: Origin }) {
  const { commit, batch, message } = origin;
  return (
    <ol class="steps-back">
      <li>
        <h2>Row</h2>
        <dl class="report">
          <div>
            <dt>table</dt>
            <dd>{origin.table}</dd>
          </div>
          <div>
            <dt>row id</dt>
            <dd>{origin.row}</dd>
          </div>
        </dl>
      </li>
      <li>
        <h2>Commit</h2>
        <dl class="report">
          <div>
            <dt>snapshot</dt>
            <dd>#{origin.made_in}</dd>
          </div>
          {commit && (
            <div>
              <dt>time</dt>
              <dd>{moment(parseTime(commit.snapshot_time))}</dd>
            </div>
          )}
          {commit?.author && (
            <div>
              <dt>author</dt>
              <dd>{commit.author}</dd>
            </div>
          )}
          {(commit?.commit_message ?? commit?.description) && (
            <div>
              <dt>what</dt>
              <dd>{commit!.commit_message ?? commit!.description}</dd>
            </div>
          )}
        </dl>
      </li>
      {batch && (
        <li>
          <h2>Batch</h2>
          <dl class="report">
            <div>
              <dt>pipeline</dt>
              <dd>
                <a href={routeTo(["streams", batch.pipeline])}>{batch.pipeline}</a>
              </dd>
            </div>
            <div>
              <dt>checkpoint</dt>
              <dd>#{batch.checkpoint}</dd>
            </div>
            {batch.stream !== null && (
              <div>
                <dt>stream</dt>
                <dd>{batch.stream}</dd>
              </div>
            )}
            {batch.first !== null && batch.last !== null && (
              <div>
                <dt>sequences</dt>
                <dd>
                  {batch.first === batch.last ? count(batch.last) : `${count(batch.first)} to ${count(batch.last)}`}
                </dd>
              </div>
            )}
          </dl>
        </li>
      )}
      {origin.sequence !== null && (
        <li>
          <h2>Message</h2>
          <dl class="report">
            <div>
              <dt>sequence</dt>
              <dd class="sequence">{count(origin.sequence)}</dd>
            </div>
            {message && (
              <>
                <div>
                  <dt>subject</dt>
                  <dd>{message.subject}</dd>
                </div>
                <div>
                  <dt>stored</dt>
                  <dd>{moment(parseTime(message.time))}</dd>
                </div>
              </>
            )}
          </dl>
          {message?.headers && (
            <pre class="code" tabIndex={0} role="region" aria-label="Headers">
              {message.headers.trim()}
            </pre>
          )}
          {message && <MessageBody body={message.body} label="Body of the message" />}
        </li>
      )}
      {origin.why && <li class="why dim">{sentence(origin.why)}.</li>}
    </ol>
  );
}
