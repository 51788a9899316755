/** Lists that come in pages, with a search; and questions before something is changed. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { get } from "./api.ts";
import { useLoad } from "./hooks.ts";
import { Dialog, Failure, Icon } from "./ui.tsx";

type Query = Record<string, string | number | null | undefined>;

export interface Listing<T> {
  entries: T[] | undefined;
  /** What the last answer said beside its entries. */
  facts: Record<string, unknown>;
  error: Error | undefined;
  loading: boolean;
  again: () => void;
  /** Load the next page, if there is one. */
  more: (() => void) | null;
}

/** Load a list page by page; another query begins again. */
export function useListing<T>(path: string, name: string, query: Query): Listing<T> {
  const key = JSON.stringify([path, query]);
  const [asked, setAsked] = useState({ key, pages: 1 });
  const pages = asked.key === key ? asked.pages : 1;
  useEffect(() => setAsked({ key, pages: 1 }), [key]);
  const found = useLoad(
    async (signal) => {
      const entries: T[] = [];
      let facts: Record<string, unknown> = {};
      // each page begins after the one before as it is now: entries may have come and gone
      for (let page = 0, cursor: unknown = null; page < pages && cursor !== undefined; page += 1) {
        facts = await get<Record<string, unknown>>(path, { ...query, cursor: cursor as string | null }, signal);
        entries.push(...(facts[name] as T[]));
        cursor = facts["next"] ?? undefined;
      }
      return { key, entries, facts };
    },
    [key, pages],
  );
  const data = found.data?.key === key ? found.data : undefined;
  return {
    entries: data?.entries,
    facts: data?.facts ?? {},
    error: found.error,
    loading: found.loading,
    again: found.again,
    more: typeof data?.facts["next"] === "string" ? () => setAsked({ key, pages: pages + 1 }) : null,
  };
}

/** A field whose value counts once its writer has paused. */
export function Search({ label, value, change }: { label: string; value: string; change: (value: string) => void }) {
  const [typed, setTyped] = useState(value);
  const sent = useRef(value);
  useEffect(() => {
    const timer = setTimeout(() => {
      if (typed === sent.current) return;
      sent.current = typed;
      change(typed);
    }, 200);
    return () => clearTimeout(timer);
  }, [typed]);
  useEffect(() => {
    if (value === sent.current) return; // somebody else has changed the address
    sent.current = value;
    setTyped(value);
  }, [value]);
  return (
    <div class="search">
      <Icon name="search" />
      <input type="search" aria-label={label} placeholder={label} maxLength={200} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} onKeyDown={(event) => event.key === "Escape" && setTyped("")} />
    </div>
  );
}

export interface Question {
  title: string;
  /** What will happen. */
  about: ComponentChildren;
  verb: string;
  /** Whether something is lost that cannot be had again. */
  grave?: boolean;
  act: () => Promise<unknown>;
}

/** Say what will happen, and let it happen. */
export function Confirm({ question, close, done }: { question: Question; close: () => void; done: () => void }) {
  const { busy, error, run } = useAct(question.act, () => (done(), close()));
  return (
    <Dialog title={question.title} close={close}>
      {error && <Failure error={error} />}
      <div class="happens">{question.about}</div>
      <div class="buttons">
        <button type="button" onClick={close}>
          Cancel
        </button>
        <button type="button" class={question.grave ? "primary grave" : "primary"} disabled={busy} onClick={run}>
          {question.verb}
        </button>
      </div>
    </Dialog>
  );
}

/** Do something once at a time, and say how it went. */
export function useAct(act: () => Promise<unknown>, done: () => void): { busy: boolean; error: Error | null; run: () => void } {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const run = () => {
    if (busy) return;
    setBusy(true);
    setError(null);
    act().then(
      () => (setBusy(false), done()),
      (failed: unknown) => (setBusy(false), setError(failed instanceof Error ? failed : new Error(String(failed)))),
    );
  };
  return { busy, error, run };
}

/** The frame of a form in a dialog: fields, what will happen, and the buttons. */
export function FormDialog({ title, happens, verb, ready, act, close, done, children }: { title: string; happens: ComponentChildren; verb: string; ready: boolean; act: () => Promise<unknown>; close: () => void; done: () => void; children: ComponentChildren }) {
  const { busy, error, run } = useAct(act, done);
  return (
    <Dialog title={title} close={close}>
      <form
        class="fields"
        onSubmit={(event) => {
          event.preventDefault();
          if (ready) run();
        }}
      >
        {error && <Failure error={error} />}
        {children}
        <p class="happens" role="status">
          {ready ? happens : <span class="dim">Fill in the fields to see what will happen.</span>}
        </p>
        <div class="buttons">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={!ready || busy}>
            {verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
