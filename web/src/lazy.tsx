/** Pages in files of their own, which are loaded when somebody goes to them. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import type { Route } from "./route.ts";
import { Failure, Waiting, type Drawing } from "./ui.tsx";

export interface LazyPage {
  id: string;
  label: string;
  icon: Drawing;
  load: () => Promise<ComponentType<{ route: Route }>>;
  /** The table that a lake has if there is something to see. */
  table?: string;
  /** Whether the page is for admins only. */
  admin?: boolean;
}

const FOUND = new Map<string, ComponentType<{ route: Route }>>();

export function Lazy({ page, route }: { page: LazyPage; route: Route }) {
  const [, setTurn] = useState(0);
  const [error, setError] = useState<Error | null>(null);
  const Found = FOUND.get(page.id);
  const load = () => {
    setError(null);
    page.load().then(
      (found) => (FOUND.set(page.id, found), setTurn((before) => before + 1)),
      () => setError(new Error("The page could not be loaded.")),
    );
  };
  useEffect(() => {
    if (Found === undefined) load();
  }, [page.id]);
  if (Found !== undefined) return <Found route={route} />;
  if (error !== null) return <Failure error={error} again={load} />;
  return <Waiting lines={6} />;
}
