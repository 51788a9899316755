/** Pages that other packages bring: modules that fill an element of this page. */

import type { ComponentType } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

import { useSession, type Session } from "./hooks.ts";
import type { LazyPage } from "./lazy.tsx";
import type { Route } from "./route.ts";
import type { PluginPage } from "./types.ts";

/** What the module of such a page exports. */
export interface PageModule {
  /** Show the page in an element; called again whenever the address changes. */
  show: (element: HTMLElement, session: Session, route: Route) => void;
  /** Let go of the element: somebody has gone to another page. */
  hide: (element: HTMLElement) => void;
}

/** Return the page of a plugin. Its files are loaded when somebody goes to it. */
export function pageOf({ id, title, icon, table, module, style }: PluginPage): LazyPage {
  return { id, label: title, icon: { path: icon }, ...(table === null ? {} : { table }), load: () => load(module, style) };
}

async function load(module: string, style: string | null): Promise<ComponentType<{ route: Route }>> {
  const [{ show, hide }] = await Promise.all([
    import(/* @vite-ignore */ new URL(module, document.baseURI).href) as Promise<PageModule>,
    style === null ? null : addStyle(style),
  ]);
  return function Plugin({ route }) {
    const session = useSession();
    const place = useRef<HTMLDivElement>(null);
    useLayoutEffect(() => {
      const element = place.current!;
      return () => hide(element);
    }, []);
    useLayoutEffect(() => void show(place.current!, session, route), [session, route]);
    return <div ref={place} />;
  };
}

function addStyle(address: string): Promise<void> {
  return new Promise((done, failed) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = address;
    link.onload = () => done();
    link.onerror = () => (link.remove(), failed(new Error(`${address} could not be loaded`)));
    document.head.append(link);
  });
}
