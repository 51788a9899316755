/** Names for snapshots. */

import { useState } from "preact/hooks";

import { ask, get, Problem } from "./api.ts";
import { Dialog, Failure } from "./ui.tsx";

export interface Tag {
  tag: string;
  snapshot: number;
}

/** Load the tags; none for those who may not see them. */
export async function loadTags(signal: AbortSignal): Promise<Tag[]> {
  try {
    const { tags } = await get<{ tags: { tag: string; snapshot_id: number }[] }>("tags", {}, signal);
    return tags.map((each) => ({ tag: each.tag, snapshot: each.snapshot_id }));
  } catch (error) {
    if (error instanceof Problem && error.status === 403) return [];
    throw error;
  }
}

export function TagDialog({ snapshot, close, done }: { snapshot: number; close: () => void; done: () => void }) {
  const [name, setName] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const submit = (event: Event) => {
    event.preventDefault();
    ask("tags", { method: "POST", body: { name: name.trim(), version: snapshot } }).then(
      () => (done(), close()),
      (failed: unknown) => setError(failed instanceof Error ? failed : new Error(String(failed))),
    );
  };
  return (
    <Dialog title={`Tag snapshot ${snapshot}`} close={close}>
      <form onSubmit={submit}>
        <p>A snapshot with a name does not expire, and can be read by it.</p>
        {error && <Failure error={error} />}
        <label>
          Name
          <input name="tag" required maxLength={200} spellcheck={false} placeholder="before-the-move" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <div class="buttons">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={!name.trim()}>
            Tag
          </button>
        </div>
      </form>
    </Dialog>
  );
}
