/** Which table the rows of a statement are of, where the statement leaves no doubt. */

/** A name, or one in quotes, with at most one schema before it. */
const NAME = String.raw`(?:"(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_]*)`;
const PLAIN = new RegExp(String.raw`^\s*(?:select\s+([^()]*?)\s+)?from\s+(${NAME}(?:\.${NAME})?)\s*(?:(where|order\s+by|limit)\b([\s\S]*))?;?\s*$`, "i");
/** A name for something else, without the word AS. */
const ALIAS = /[^,\s]\s+"?rowid\b/i;
const DOUBT = /\b(select|from|join|union|except|intersect|group|with|lateral|as\s+"?rowid|pivot|unnest|using|at)\b|,\s*lateral/i;

/** Return the table whose rows a statement returns as they are, as addresses have its name; null in doubt. */
export function tableOf(sql: string): string | null {
  const found = PLAIN.exec(sql);
  if (found === null) return null;
  const [, columns = "*", name = "", , rest = ""] = found;
  if (/'|--|\/\*/.test(columns) || DOUBT.test(columns) || ALIAS.test(columns) || DOUBT.test(rest.replace(/'(?:[^']|'')*'/g, "''"))) return null;
  const parts = name.match(new RegExp(NAME, "g")) ?? [];
  const plain = parts.map((part) => (part.startsWith('"') ? part.slice(1, -1).replaceAll('""', '"') : part));
  const shown = plain.map((part) => (/^[^".]+$/.test(part) ? part : `"${part.replaceAll('"', '""')}"`));
  return shown.length === 2 ? shown.join(".") : `main.${shown[0]}`;
}
