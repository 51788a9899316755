/** The answers of the API, as /api/v1/openapi.json describes them. */

export type Role = "reader" | "writer" | "admin";

export interface LakeFacts {
  snapshot: number;
  principal: string;
  role: Role;
  format_version: string;
  catalog: string | null;
  /** Parts of a demo can be broken. */
  demo: boolean;
  /** Pages that other packages bring. */
  pages: readonly PluginPage[];
}

export interface PluginPage {
  id: string;
  title: string;
  /** The path of an SVG drawing of 24 by 24. */
  icon: string;
  /** The table that a lake has if there is something to see. */
  table: string | null;
  /** Addresses, relative to that of this page. */
  module: string;
  style: string | null;
}

export interface Names {
  snapshot: number;
  tables: string[];
  views: string[];
}

export interface Column {
  name: string;
  type: string;
  nullable: boolean;
  default?: string | null;
  primary_key?: boolean;
  comment?: string | null;
}

/** A table. What a restricted principal may not know of is missing. */
export interface TableFacts {
  snapshot: number;
  schema: string;
  name: string;
  columns: Column[];
  rows: number;
  comment?: string | null;
  partitioned_by?: string[];
  sorted_by?: string[];
  inlined_rows?: number;
  files?: number;
  bytes?: number;
}

export interface DataFile {
  data_file_id: number;
  path: string;
  record_count: number;
  deleted_rows?: number | null;
  file_size_bytes: number;
  begin_snapshot: number;
  partition: (string | null)[];
}

export interface Snapshot {
  snapshot_id: number;
  snapshot_time: string;
  schema_version: number;
  changes: string;
  author: string | null;
  commit_message: string | null;
  operation: string | null;
  description: string | null;
}

export interface ResultColumn {
  name: string;
  type: string;
}

export interface Job {
  id: string;
  kind: string;
  dry_run: boolean;
  state: "waiting" | "running" | "done" | "failed" | "cancelled";
  cancelling: boolean;
  stage: string;
  done: number;
  total: number | null;
  result: unknown;
  error: { code: string; detail: string; hint: string | null } | null;
  began: number;
}

export interface ProblemBody {
  status: number;
  code: string;
  detail?: string;
  hint?: string | null;
  request_id?: string;
}

export interface Care {
  due: { job: string; table: string | null; reason: string }[];
  tables: {
    table: string;
    files: number;
    bytes: number;
    small_files: number;
    files_with_many_deletes: number;
    inlined_rows: number;
  }[];
  oldest_snapshot_seconds: number;
  removable_files: number;
  /** By how many bytes the files have grown, and in how many seconds. */
  growth: { bytes: number; seconds: number };
}
