/** What pages share: facts that are loaded, the stream of events, and the address. */

import { createContext } from "preact";
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks";

import { BACK, Live, type Heard } from "./live.ts";
import { parseRoute, type Route } from "./route.ts";
import type { LakeFacts } from "./types.ts";

export interface Session {
  facts: LakeFacts;
  live: Live;
  leave: () => void;
}

export const SessionContext = createContext<Session | null>(null);

/** Return the session; only pages behind the sign-in ask. */
export function useSession(): Session {
  const found = useContext(SessionContext);
  if (found === null) throw new Error("nobody has signed in");
  return found;
}

/** Return what was heard last, again after each event. */
export function useHeard(): Heard {
  const { live } = useSession();
  const [heard, setHeard] = useState(live.heard);
  useEffect(() => {
    setHeard(live.heard);
    return live.subscribe(setHeard);
  }, [live]);
  return heard;
}

/** Return the newest snapshot, at most once in so many milliseconds: a busy lake commits more often than one can read. */
export function useNewest(every = 1000): number {
  const { snapshot } = useHeard();
  const [shown, setShown] = useState(snapshot);
  const last = useRef(0);
  useEffect(() => {
    const wait = Math.max(0, last.current + every - Date.now());
    const timer = setTimeout(() => {
      last.current = Date.now();
      setShown(snapshot);
    }, wait);
    return () => clearTimeout(timer);
  }, [snapshot, every]);
  return shown;
}

export interface Loaded<T> {
  data: T | undefined;
  error: Error | undefined;
  loading: boolean;
  again: () => void;
}

/**
 * Load something, again when an input changes. What was loaded before stays until the new is there.
 *
 * A change of `fresh`, such as a newer snapshot, lets what is under way come first: a lake that commits faster than it
 * answers would never show anything otherwise.
 */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, inputs: readonly unknown[], fresh: unknown = 0): Loaded<T> {
  const [found, setFound] = useState<{ data?: T; error?: Error; loading: boolean }>({ loading: true });
  const [turn, setTurn] = useState(0);
  const asked = useRef({ load, fresh, under: false, loaded: fresh });
  asked.current.load = load;
  asked.current.fresh = fresh;
  const again = useCallback(() => setTurn((before) => before + 1), []);
  useEffect(() => {
    const ended = new AbortController();
    const now = asked.current;
    const ends = (next: (before: { data?: T; error?: Error; loading: boolean }) => { data?: T; error?: Error; loading: boolean }) => {
      if (ended.signal.aborted) return;
      now.under = false;
      setFound(next);
      if (now.fresh !== now.loaded) again();
    };
    now.under = true;
    now.loaded = now.fresh;
    setFound((before) => ({ ...before, loading: true }));
    now.load(ended.signal).then(
      (data) => ends(() => ({ data, loading: false })),
      (error: unknown) => ends((before) => ({ ...before, error: error instanceof Error ? error : new Error(String(error)), loading: false })),
    );
    return () => ended.abort();
  }, [...inputs, turn]);
  useEffect(() => {
    if (!asked.current.under && fresh !== asked.current.loaded) again();
  }, [fresh]);
  const failed = found.error !== undefined;
  useEffect(() => {
    if (!failed) return;
    addEventListener(BACK, again);
    return () => removeEventListener(BACK, again);
  }, [failed]);
  return { data: found.data, error: found.error, loading: found.loading, again };
}

/** Return the route of the address, again when it changes. */
export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", changed);
    changed();
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** Change the address without a step in the history of the browser. */
export function replaceRoute(fragment: string): void {
  history.replaceState(null, "", fragment);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Return the time, again every so many milliseconds. */
export function useNow(every = 5000): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => setNow(new Date()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}
