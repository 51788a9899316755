/** The pages beside those that everybody opens first. */

import type { LazyPage } from "./lazy.tsx";

export const MORE_PAGES: readonly LazyPage[] = [
  { id: "pond", label: "Pond", icon: "pond", table: "pond.nodes", load: async () => (await import("./pond.tsx")).PondPage },
];
