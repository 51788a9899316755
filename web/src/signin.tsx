/** The sign-in: a token, kept until the tab is closed. */

import { useState } from "preact/hooks";

import { session } from "./api.ts";
import { Failure } from "./ui.tsx";

export function SignIn({ error, enter }: { error: Error | null; enter: () => Promise<void> }) {
  const [token, setToken] = useState("");
  const [lake, setLake] = useState("");
  const [operator, setOperator] = useState(session.operator);
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    session.keep(token.trim(), operator ? null : lake.trim() || null, operator);
    await enter();
    setBusy(false);
  };
  return (
    <main class="alone">
      <form class="card signin" onSubmit={submit}>
        <span class="duck large" aria-hidden="true" />
        <h1>Quacklake</h1>
        <p class="dim">Sign in with a token of this service. It stays in this tab, and is gone when you close it.</p>
        {error && <Failure error={error} />}
        <label>
          Token
          <input type="password" name="token" autocomplete="off" spellcheck={false} required autofocus placeholder="ql_…" value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <label>
          <span>
            Lake <span class="dim">if your token opens several</span>
          </span>
          <input name="lake" autocomplete="off" spellcheck={false} disabled={operator} value={lake} onInput={(event) => setLake(event.currentTarget.value)} />
        </label>
        <label class="inline">
          <input type="checkbox" name="operator" checked={operator} onChange={(event) => setOperator(event.currentTarget.checked)} />
          <span>It is the token of an operator</span>
        </label>
        <button type="submit" class="primary" disabled={busy || token.trim() === ""}>
          Sign in
        </button>
        <p class="dim small">
          <code>quacklake serve</code> prints a token and an address that signs you in.
        </p>
      </form>
    </main>
  );
}
