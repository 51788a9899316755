import { defineConfig } from "vite";

// Addresses are relative: the page works under any prefix. Nothing is inlined: the service allows its own files only.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/quacklake/service/web",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    rolldownOptions: {
      // the editor changes less often than the page: its file stays the same
      output: { codeSplitting: { groups: [{ name: "editor", test: /node_modules\/(@codemirror|@lezer|@marijn|style-mod|w3c-keyname|crelt)/ }] } },
    },
  },
});
