/** The plan of a statement as a tree, with the files that each table lets it leave out. */

import { runSql, type Statement } from "./api.ts";
import { count, counted } from "./format.ts";
import { useLoad } from "./hooks.ts";
import "./pages.css";
import { isOne, readsOf, stepsOf, type Read, type Step } from "./plan.ts";
import { Dialog, Empty, Failure, Waiting } from "./ui.tsx";

async function explained(statement: Statement, form: string, signal: AbortSignal): Promise<string> {
  const rows = await runSql({ ...statement, sql: `EXPLAIN ${form} ${statement.sql}` }, { signal });
  return Array.from({ length: rows.length }, (_, index) => String(rows.row(index)["explain_value"] ?? "")).join("\n");
}

export function PlanDialog({ statement, close }: { statement: Statement; close: () => void }) {
  const one = isOne(statement.sql);
  const found = useLoad(
    async (signal) => {
      if (!one) return null;
      const [tree, plain] = await Promise.all([explained(statement, "(FORMAT JSON)", signal), explained(statement, "", signal)]);
      return { steps: stepsOf(tree), reads: readsOf(plain) };
    },
    [statement.sql],
  );
  return (
    <Dialog title="Plan" close={close}>
      {!one && <Empty title="Only one statement has a plan.">Write it into a tab of its own.</Empty>}
      {found.error && <Failure error={found.error} />}
      {one && !found.data && !found.error && <Waiting lines={6} />}
      {found.data && (
        <div class="plan">
          {found.data.reads.map((each) => (
            <Files key={each.table} read={each} />
          ))}
          {found.data.steps.length ? <Tree steps={found.data.steps} /> : <Empty title="The statement has no plan." />}
        </div>
      )}
    </Dialog>
  );
}

function Files({ read }: { read: Read }) {
  const share = read.files ? read.pruned / read.files : 0;
  return (
    <div class="reads">
      <p>
        <b class="code">{read.table}</b>{" "}
        <span class="dim">
          {read.files ? `reads ${count(read.read)} of ${counted(read.files, "file")}, ${count(read.pruned)} pruned` : "has no files"}
          {read.deletes > 0 && `, ${counted(read.deletes, "delete")}`}
          {read.inlined > 0 && `, ${counted(read.inlined, "row")} in the catalog`}
        </span>
      </p>
      {read.files > 0 && (
        <span class="track" aria-hidden="true">
          <i style={{ width: `${Math.round((1 - share) * 1000) / 10}%` }} />
        </span>
      )}
    </div>
  );
}

function Tree({ steps }: { steps: readonly Step[] }) {
  return (
    <ul class="steps">
      {steps.map((step, index) => (
        <li key={index}>
          <div class="step">
            <b>{step.name.toLowerCase().replaceAll("_", " ")}</b>
            {step.rows !== null && <span class="dim"> about {counted(step.rows, "row")}</span>}
            {step.facts.map(([name, text]) => (
              <p key={name} class="dim small">
                {name}: <span class="code">{text.length > 300 ? `${text.slice(0, 300)}…` : text}</span>
              </p>
            ))}
          </div>
          {step.children.length > 0 && <Tree steps={step.children} />}
        </li>
      ))}
    </ul>
  );
}
