/** The names of tables. The service lists them as schema.table, whatever characters they have. */

import { get } from "./api.ts";
import { referTo, type Reference } from "./format.ts";
import type { Names } from "./types.ts";

export interface Known {
  tables: Reference[];
  views: Reference[];
}

/** Load the tables and views of the lake. */
export async function loadKnown(signal: AbortSignal): Promise<Known> {
  const [names, { schemas }] = await Promise.all([get<Names>("tables", {}, signal), get<{ schemas: string[] }>("schemas", {}, signal)]);
  const refer = (name: string) => referTo(name, schemas);
  return { tables: names.tables.map(refer), views: names.views.map(refer) };
}
