/** Ekko's page, as the dashboard loads it from Ekko's part of the service. */

import { render } from "preact";

import { SessionContext } from "dashboard/hooks.ts";
import type { PageModule } from "dashboard/plugins.tsx";
import "./page.css";
import { TransactionsPage } from "./transactions.tsx";

export const show: PageModule["show"] = (element, session, route) =>
  render(
    <SessionContext.Provider value={session}>
      <TransactionsPage route={route} />
    </SessionContext.Provider>,
    element,
  );

export const hide: PageModule["hide"] = (element) => render(null, element);
