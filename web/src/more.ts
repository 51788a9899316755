/** The pages beside those that everybody opens first. */

import type { LazyPage } from "./lazy.tsx";
import { pageOf } from "./plugins.tsx";
import type { PluginPage } from "./types.ts";

const POND: LazyPage = { id: "pond", label: "Pond", icon: "pond", table: "pond.nodes", load: async () => (await import("./pond.tsx")).PondPage };
const WORK: readonly LazyPage[] = [
  { id: "views", label: "Views", icon: "view", load: async () => (await import("./views.tsx")).ViewsPage },
  { id: "jobs", label: "Jobs", icon: "jobs", admin: true, load: async () => (await import("./joblist.tsx")).JobsPage },
  { id: "access", label: "Access", icon: "key", admin: true, load: async () => (await import("./access.tsx")).AccessPage },
  { id: "audit", label: "Audit", icon: "file", admin: true, load: async () => (await import("./audit.tsx")).AuditPage },
  { id: "maintenance", label: "Maintenance", icon: "refresh", admin: true, load: async () => (await import("./maintenance.tsx")).MaintenancePage },
  { id: "backups", label: "Backups", icon: "folder", admin: true, load: async () => (await import("./backups.tsx")).BackupsPage },
];

/** Return these pages in their order, those of plugins among them. */
export function morePages(plugins: readonly PluginPage[]): readonly LazyPage[] {
  return [POND, ...plugins.map(pageOf), ...WORK];
}
