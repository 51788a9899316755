import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

// The page of an app: a module and a style sheet, which the dashboard loads from the app's part of the service. It has a
// copy of what it uses of the dashboard, so that the two can be built and installed apart.
const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const app = process.env["APP"]!;

export default defineConfig({
  root: at(`../apps/${app}/web`),
  resolve: {
    alias: [
      { find: /^dashboard\//, replacement: at("./src/") },
      { find: /^preact(?=\/|$)/, replacement: at("./node_modules/preact") },
    ],
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: at(`../apps/${app}/src/quacklake_${app}/web`),
    emptyOutDir: true,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: false,
    target: "es2022",
    rolldownOptions: {
      input: at(`../apps/${app}/web/page.tsx`),
      preserveEntrySignatures: "exports-only",
      output: { entryFileNames: "page.js", assetFileNames: "page[extname]" },
    },
  },
});
