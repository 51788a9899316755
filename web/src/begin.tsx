/** What a newcomer may try first in a demo. */

import { get, session } from "./api.ts";
import { useLoad, useSession } from "./hooks.ts";
import "./look.css";
import { Card } from "./ui.tsx";

interface Step {
  title: string;
  about: string;
  /** The address of a page. */
  page: string;
  lake: string | null;
}

export function Begin() {
  const { facts } = useSession();
  const found = useLoad((signal) => get<{ steps: Step[] }>("chaos", {}, signal), []);
  /** Another lake of the same token is another session: the page begins anew. */
  const go = (step: Step) => (event: Event) => {
    if (step.lake === null || step.lake === facts.catalog) return;
    event.preventDefault();
    session.keep(session.token, step.lake);
    location.hash = `#/${step.page}`;
    location.reload();
  };
  return (
    <Card title="Try this" class="try">
      <ol class="begin">
        {(found.data?.steps ?? []).map((step) => (
          <li key={step.title}>
            <a href={`#/${step.page}`} onClick={go(step)}>
              {step.title}
            </a>
            <p class="dim">{step.about}</p>
          </li>
        ))}
      </ol>
    </Card>
  );
}
