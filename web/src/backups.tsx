/** The backups of the lake, in the place that the service has for them: list, make, verify, and how to restore. */

import { useState } from "preact/hooks";

import "./access.css";
import { List } from "./access.tsx";
import { get } from "./api.ts";
import { ago, bytes, count, moment, parseTime } from "./format.ts";
import { useLoad, useNow } from "./hooks.ts";
import { JobDialog, type Work } from "./jobs.tsx";
import "./pages.css";
import { routeTo } from "./route.ts";
import { Dialog, Empty, Failure, Figure, Icon, Waiting } from "./ui.tsx";

interface Backup {
  id: string;
  time: string;
  snapshot: number;
  files: number;
  bytes: number;
  format_version: string;
  encrypted: boolean;
  /** Files that were gone before the backup was made. */
  missing: number;
}

const MAKING: Work = {
  title: "Make a backup",
  about: "The catalog is written down as it is now, and the files that the place lacks are copied there. Others may write meanwhile. A backup that is cut off does not exist, and the next one goes on with its files.",
  kind: "backup",
  given: {},
  dry: false,
  plan: { copies: "the catalog, and the files that are new" },
  path: "backups",
  verb: "Back up",
};

function verifying(backup: Backup): Work {
  return {
    title: "Verify a backup",
    about: `All ${count(backup.files)} files of the backup of snapshot ${backup.snapshot} are read and compared with their hashes: this is what a restore would bring. Nothing is changed.`,
    kind: "verify_backup",
    given: {},
    dry: false,
    plan: { reads: bytes(backup.bytes) },
    path: `backups/${encodeURIComponent(backup.id)}/verify`,
    verb: "Verify",
  };
}

export function BackupsPage() {
  const now = useNow();
  const found = useLoad((signal) => get<{ on: boolean; backups: Backup[]; more: number }>("backups", {}, signal), []);
  const [work, setWork] = useState<Work | null>(null);
  const [restoring, setRestoring] = useState<Backup | null>(null);
  const backups = found.data?.backups ?? [];
  const newest = backups[0];
  return (
    <article class="access backups">
      <header class="title">
        <h1>Backups</h1>
        <p class="dim">The catalog and the files of the lake, in a place of their own. Backups share the files that have not changed.</p>
        {found.data?.on && (
          <div class="actions">
            <button type="button" class="make primary" onClick={() => setWork(MAKING)}>
              <Icon name="plus" /> Make a backup…
            </button>
          </div>
        )}
      </header>
      {found.error && <Failure error={found.error} again={found.again} />}
      {!found.data && !found.error && <Waiting lines={5} />}
      {found.data && !found.data.on && (
        <Empty title="This service has no place for backups.">
          Start it with <code>quacklake serve --backups PLACE</code>: a folder, or an s3:// URL. On the command line, <code>quacklake backup</code> makes one anywhere.
        </Empty>
      )}
      {found.data?.on && !newest && <Empty title="There are no backups yet.">The first copies all files; later ones copy what is new.</Empty>}
      {newest && (
        <>
          <dl class="figures">
            <Figure label="Newest" value={ago(parseTime(newest.time), now)} note={`of snapshot ${count(newest.snapshot)}`} />
            <Figure label="Its size" value={bytes(newest.bytes)} />
            <Figure label="Backups" value={count(backups.length + (found.data?.more ?? 0))} />
          </dl>
          <List label="Backups" heads={["Made", "Snapshot", "Files#", "Size#", "Format", "Do"]}>
            {backups.map((each) => (
              <tr key={each.id}>
                <th scope="row">
                  <time title={each.id}>{moment(parseTime(each.time))}</time> {each.encrypted && <span class="tag">encrypted</span>}
                  {each.missing > 0 && <div class="stand warn">{count(each.missing)} files were gone already</div>}
                </th>
                <td>
                  <a href={routeTo(["snapshots"], { at: each.snapshot })}>#{each.snapshot}</a>
                </td>
                <td class="number">{count(each.files)}</td>
                <td class="number">{bytes(each.bytes)}</td>
                <td>{each.format_version}</td>
                <td>
                  <span class="row-buttons">
                    <button type="button" class="verify" aria-label={`Verify the backup of snapshot ${each.snapshot}`} onClick={() => setWork(verifying(each))}>
                      Verify…
                    </button>
                    <button type="button" class="restore" aria-label={`Restore the backup of snapshot ${each.snapshot}`} onClick={() => setRestoring(each)}>
                      Restore…
                    </button>
                  </span>
                </td>
              </tr>
            ))}
          </List>
        </>
      )}
      {work && <JobDialog work={work} close={() => setWork(null)} done={found.again} />}
      {restoring && (
        <Dialog title={`Restore snapshot ${restoring.snapshot}`} close={() => setRestoring(null)}>
          <p>
            A backup becomes a new lake beside this one, with {count(restoring.files)} files ({bytes(restoring.bytes)}), the same snapshots and row ids. The service does not do this: it would have to write where it may not. Whoever runs it does, with its place for backups, a new database and an empty folder:
          </p>
          <code class="secret">
            quacklake restore-backup PLACE --lake sqlite:///restored.db --data-path restored/ --backup {restoring.id}
          </code>
          <p class="dim">To undo a change instead, restore a table or roll the lake back: that needs no backup.</p>
          <div class="buttons">
            <a class="button" href={routeTo(["snapshots"])}>
              Snapshots
            </a>
            <button type="button" class="primary" onClick={() => setRestoring(null)}>
              Close
            </button>
          </div>
        </Dialog>
      )}
    </article>
  );
}
