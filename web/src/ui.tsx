/** Small parts that all pages are made of. */

import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

import { Problem } from "./api.ts";
import { splitPlace } from "./format.ts";

const ICONS = {
  overview: "M4 13h6V4H4zm0 7h6v-5H4zm10 0h6v-9h-6zm0-16v5h6V4z",
  tables: "M4 5h16v4H4zm0 6h7v8H4zm9 0h7v8h-7z",
  sql: "m5 7 5 5-5 5m7 0h7",
  history: "M12 7v5l3.500 2M4.500 12a7.500 7.500 0 1 0 2.200-5.300L4.500 9m0-4.500V9H9",
  streams: "M3 8c3-3 6-3 9 0s6 3 9 0M3 16c3-3 6-3 9 0s6 3 9 0",
  jobs: "M13 3 5 14h6l-1 7 8-11h-6z",
  search: "M10.500 17a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13m5-1.500L20 20",
  table: "M4 5h16v14H4zm0 5h16M10 10v9",
  view: "M2.500 12S6 5.500 12 5.500 21.500 12 21.500 12 18 18.500 12 18.500 2.500 12 2.500 12M12 14.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5",
  pond: "M12 3.500c3.500 4.500 5.500 7.500 5.500 10.500a5.500 5.500 0 0 1-11 0c0-3 2-6 5.500-10.500M9.500 14.500a2.500 2.500 0 0 0 2.500 2.500",
  tree: "M9 4h6v4H9zM4 16h6v4H4zM14 16h6v4h-6zM12 8v4M7 16v-4h10v4",
  folder: "M3 6h6l2 2h10v11H3z",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  series: "M3 17l5-6 4 3 4-8 5 6",
  refresh: "M19 8a8 8 0 1 0 1 6M20 4v5h-5",
  people: "M9 11a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7M3 20c0-4 3-6 6-6s6 2 6 6M16 4.500a3.500 3.500 0 0 1 0 6.500M18 14.500c2 1 3 3 3 5.500",
  key: "M14.500 12.500a4 4 0 1 0-3.500-3.500L4 16v4h4v-2h2v-2h2z",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  leave: "M10 5H5v14h5m4-3 4-4-4-4m4 4H9",
  close: "m6 6 12 12M18 6 6 18",
  plus: "M12 5v14M5 12h14",
  play: "M7 5v14l11-7z",
  stop: "M7 7h10v10H7z",
  link: "M9.500 14.500 14.500 9.500M11 7l2-2a4.200 4.200 0 0 1 6 6l-2 2m-4 4-2 2a4.200 4.200 0 0 1-6-6l2-2",
  download: "M12 4v11m-5-4 5 5 5-5M5 20h14",
  check: "m5 12.500 4.500 4.500L19 7.500",
  warning: "M12 4 2.500 20h19zM12 10v4.500m0 2.500v.5",
} as const;

export type IconName = keyof typeof ICONS;

/** A drawing that the dashboard has, or one that a plugin brings. */
export type Drawing = IconName | { path: string };

export function Icon({ name }: { name: Drawing }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={typeof name === "string" ? ICONS[name] : name.path} />
    </svg>
  );
}

/** Say what went wrong, and what to do. */
export function Failure({ error, again }: { error: Error; again?: () => void }) {
  const { said, place } = splitPlace(error.message);
  const hint = error instanceof Problem ? error.hint : null;
  return (
    <div class="notice failure" role="alert">
      <Icon name="warning" />
      <div>
        <strong>{sentence(said)}</strong>
        {place && <pre class="place">{place}</pre>}
        {hint && <p>{sentence(hint)}</p>}
        {error instanceof Problem && <p class="dim code">{error.code}</p>}
      </div>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Return a text that begins like a sentence. */
export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <strong>{title}</strong>
      {children && <p>{children}</p>}
    </div>
  );
}

/** Hold the place of something that is being loaded. */
export function Waiting({ lines = 3, label = "Loading" }: { lines?: number; label?: string }) {
  return (
    <div class="waiting" role="status" aria-label={label}>
      {Array.from({ length: lines }, (_, line) => (
        <span class="bone" key={line} />
      ))}
    </div>
  );
}

export function Card({ title, aside, children, class: more = "" }: { title: string; aside?: ComponentChildren; children: ComponentChildren; class?: string }) {
  return (
    <section class={`card ${more}`}>
      <header>
        <h2>{title}</h2>
        {aside && <div class="aside">{aside}</div>}
      </header>
      {children}
    </section>
  );
}

export function Figure({ label, value, note }: { label: string; value: ComponentChildren; note?: ComponentChildren }) {
  return (
    <div class="figure">
      <dt>{label}</dt>
      <dd>
        <span class="value">{value}</span>
        {note && <span class="dim">{note}</span>}
      </dd>
    </div>
  );
}

export interface Choice {
  id: string;
  label: string;
}

/** Tabs that the arrow keys move between. `name` begins the ids of tabs and panel, where a page has more than one list. */
export function Tabs({ label, choices, chosen, choose, name = "tab" }: { label: string; choices: readonly Choice[]; chosen: string; choose: (id: string) => void; name?: string }) {
  const list = useRef<HTMLDivElement>(null);
  const moved = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const now = choices.findIndex((each) => each.id === chosen);
    const next = (now + step + choices.length) % choices.length;
    choose(choices[next]!.id);
    list.current?.querySelectorAll<HTMLElement>("[role=tab]")[next]?.focus();
    event.preventDefault();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={moved}>
      {choices.map((each) => (
        <button
          key={each.id}
          type="button"
          role="tab"
          id={`${name}-${each.id}`}
          aria-selected={each.id === chosen}
          aria-controls={`${name}-panel`}
          tabIndex={each.id === chosen ? 0 : -1}
          onClick={() => choose(each.id)}
        >
          {each.label}
        </button>
      ))}
    </div>
  );
}

/** A question over the page; Escape and a click beside it answer no. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  // before the next picture: a dialog that is not open yet has no place
  useLayoutEffect(() => {
    const dialog = element.current!;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return (
    <dialog
      ref={element}
      aria-labelledby="dialog-title"
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onClick={(event) => event.target === element.current && close()}
    >
      <div class="sheet">
        <header>
          <h2 id="dialog-title">{title}</h2>
          <button type="button" class="quiet" aria-label="Close" onClick={close}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
