/** The maintenance that a lake needs, and why. */

import type { Care } from "./types.ts";
import { Icon, sentence } from "./ui.tsx";

export function Due({ care }: { care: Care }) {
  if (!care.due.length)
    return (
      <p class="fine">
        <Icon name="check" /> Nothing is due. Small files, deletes and rows in the catalog are within limits.
      </p>
    );
  return (
    <ul class="due">
      {care.due.map((each, index) => (
        <li key={index}>
          <Icon name="warning" />
          <span>
            <strong>{sentence(each.job.replaceAll("_", " "))}</strong> {each.table !== null && <code>{each.table}</code>}
            <span class="dim"> {each.reason}</span>
          </span>
        </li>
      ))}
    </ul>
  );
}
