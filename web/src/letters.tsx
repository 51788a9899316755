/** The dead letters of a pipeline: messages that are not rows, with the reason, and publishing them again. */

import { useState } from "preact/hooks";

import { ask, get } from "./api.ts";
import type { Described } from "./flow.ts";
import { bytes, count, counted, moment, parseTime } from "./format.ts";
import { useLoad, useSession } from "./hooks.ts";
import { Card, Dialog, Empty, Failure, Icon, Waiting } from "./ui.tsx";

const PAGE = 50;

/** The body of a message: text, or base64 of bytes that are none. */
export interface Body {
  text?: string;
  base64?: string;
  size: number;
  cut: boolean;
}

interface Letter {
  row: number;
  sequence: number;
  subject: string;
  time: string | null;
  reason: string | null;
  body: Body;
}

interface Page {
  letters: Letter[];
  count: number;
  pending: number;
  next: number | null;
}

export function Letters({ pipeline, again }: { pipeline: Described; again: () => void }) {
  const { facts } = useSession();
  const admin = facts.role === "admin";
  const [after, setAfter] = useState(-1);
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const [asked, setAsked] = useState<number[] | null>(null);
  const path = `pipelines/${encodeURIComponent(pipeline.name)}/dead-letters`;
  const found = useLoad((signal) => get<Page>(path, { limit: PAGE, after }, signal), [pipeline.name, after], `${pipeline.letters} ${pipeline.letters_pending}`);
  const letters = found.data?.letters ?? [];
  const pick = (row: number) => {
    const next = new Set(chosen);
    if (!next.delete(row)) next.add(row);
    setChosen(next);
  };
  const picked = letters.filter((each) => chosen.has(each.row)).map((each) => each.row);
  return (
    <Card
      title="Dead letters"
      class="letters"
      aside={
        admin &&
        letters.length > 0 && (
          <span class="buttons">
            <button type="button" class="replay" disabled={picked.length === 0} onClick={() => setAsked(picked)}>
              Replay {picked.length ? count(picked.length) : "chosen"}…
            </button>
            <button type="button" class="replay-all" onClick={() => setAsked(letters.map((each) => each.row))}>
              Replay these {count(letters.length)}…
            </button>
          </span>
        )
      }
    >
      {found.error && <Failure error={found.error} again={found.again} />}
      {!found.data && !found.error && <Waiting lines={3} />}
      {found.data && found.data.pending > 0 && (
        <div class="notice">
          <Icon name="warning" />
          <div>
            {counted(found.data.pending, "message")} of a replay that was cut off {found.data.pending === 1 ? "waits" : "wait"} to be published.
          </div>
          {admin && (
            <button type="button" class="finish" onClick={() => setAsked([])}>
              Publish…
            </button>
          )}
        </div>
      )}
      {found.data && letters.length === 0 && <Empty title={after < 0 ? "There are no dead letters." : "There are no more."}>{after < 0 && "Every message so far was a row."}</Empty>}
      <ul>
        {letters.map((each) => (
          <li key={each.row}>
            {admin && <input type="checkbox" aria-label={`Choose message ${each.sequence}`} checked={chosen.has(each.row)} onChange={() => pick(each.row)} />}
            <div>
              <p>
                <b>{count(each.sequence)}</b> <code>{each.subject}</code> <strong class="bad">{each.reason}</strong>
                <span class="dim"> {each.time && moment(parseTime(each.time))}</span>
              </p>
              <MessageBody body={each.body} label={`Message ${each.sequence}`} />
            </div>
          </li>
        ))}
      </ul>
      {(after >= 0 || found.data?.next != null) && (
        <p class="centre buttons">
          <button type="button" disabled={after < 0} onClick={() => setAfter(-1)}>
            First
          </button>
          <button type="button" disabled={found.data?.next == null} onClick={() => setAfter(found.data!.next!)}>
            Next
          </button>
        </p>
      )}
      {asked && (
        <Replay
          pipeline={pipeline}
          rows={asked}
          close={() => setAsked(null)}
          done={() => {
            setAsked(null);
            setChosen(new Set());
            found.again();
            again();
          }}
        />
      )}
    </Card>
  );
}

export function MessageBody({ body, label }: { body: Body; label: string }) {
  return (
    <>
      {body.size === 0 ? (
        <p class="dim">The message is empty.</p>
      ) : (
        <pre class="code body" tabIndex={0} role="region" aria-label={label}>
          {body.text ?? body.base64}
        </pre>
      )}
      {(body.cut || body.base64 !== undefined) && (
        <p class="dim small">
          {body.base64 !== undefined && "Bytes, in base64. "}
          {body.cut && `The beginning of ${bytes(body.size)}.`}
        </p>
      )}
    </>
  );
}

function Replay({ pipeline, rows, close, done }: { pipeline: Described; rows: number[]; close: () => void; done: () => void }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const replay = () => {
    setBusy(true);
    setError(null);
    ask(`pipelines/${encodeURIComponent(pipeline.name)}/dead-letters/replay`, { method: "POST", body: { rows } }).then(done, (failed: unknown) => {
      setBusy(false);
      setError(failed instanceof Error ? failed : new Error(String(failed)));
    });
  };
  return (
    <Dialog title={rows.length ? `Replay ${counted(rows.length, "dead letter")}` : "Finish the replay"} close={close}>
      <p>
        The {rows.length === 1 ? "message is" : "messages are"} published to {pipeline.reads ?? "the stream"} again, once, and taken out of {pipeline.dead_letters}. The pipeline reads {rows.length === 1 ? "it as a new message" : "them as new messages"}: change its schema or
        its query first, so that {rows.length === 1 ? "it becomes a row" : "they become rows"}.
      </p>
      {error && <Failure error={error} />}
      <div class="buttons">
        <button type="button" onClick={close}>
          Cancel
        </button>
        <button type="button" class="primary" disabled={busy} onClick={replay}>
          {rows.length ? "Replay" : "Publish"}
        </button>
      </div>
    </Dialog>
  );
}
