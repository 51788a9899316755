/** The editor of SQL. It lives in a shadow root, where its styles are sheets and not elements: the page allows none. */

import { acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, completionStatus } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { PostgreSQL, SQLDialect, sql, type SQLNamespace } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const DUCKDB = SQLDialect.define({
  ...PostgreSQL.spec,
  keywords: `${PostgreSQL.spec.keywords ?? ""} asof qualify pivot unpivot sample summarize describe exclude positional semi anti`,
});

const LOOK = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "transparent", fontSize: "13.5px", height: "100%" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6" },
  ".cm-content": { padding: "10px 0", caretColor: "var(--accent)" },
  ".cm-cursor": { borderLeftColor: "var(--accent)", borderLeftWidth: "2px" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--dim)", border: "none", paddingLeft: "6px" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--soft)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--select) !important" },
  ".cm-matchingBracket": { backgroundColor: "var(--select)", outline: "none" },
  ".cm-placeholder": { color: "var(--dim)" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "8px", boxShadow: "var(--shadow)", overflow: "hidden" },
  ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "13px" },
  ".cm-tooltip-autocomplete > ul > li": { padding: "3px 10px" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionIcon": { display: "none" },
  ".cm-completionDetail": { color: "var(--dim)", fontStyle: "normal" },
});

const COLOURS = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--code-word)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-text)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: [tags.lineComment, tags.blockComment], color: "var(--dim)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--code-type)" },
]);

/** Take the completion that is shown. One that has just appeared is not taken at once, but Tab does not leave the editor then. */
function completed(view: EditorView): boolean {
  return acceptCompletion(view) || completionStatus(view.state) === "active";
}

export interface Editor {
  complete(names: SQLNamespace): void;
  focus(): void;
  close(): void;
}

export function makeEditor(host: HTMLElement, text: string, on: { changed: (text: string) => void; run: () => void }): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const language = new Compartment();
  const run = () => (on.run(), true);
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: text,
      extensions: [
        Prec.highest(keymap.of([{ key: "Mod-Enter", run }, { key: "Shift-Enter", run }, { key: "Tab", run: completed }])),
        lineNumbers(),
        highlightActiveLine(),
        history(),
        drawSelection(),
        bracketMatching(),
        closeBrackets(),
        autocompletion({ icons: false }),
        EditorView.lineWrapping,
        placeholder("SELECT … — Ctrl+Enter runs it"),
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        language.of(sql({ dialect: DUCKDB, upperCaseKeywords: true })),
        syntaxHighlighting(COLOURS),
        LOOK,
        EditorView.contentAttributes.of({ "aria-label": "SQL" }),
        EditorView.updateListener.of((update) => update.docChanged && on.changed(update.state.doc.toString())),
      ],
    }),
  });
  return {
    complete(schema) {
      view.dispatch({ effects: language.reconfigure(sql({ dialect: DUCKDB, upperCaseKeywords: true, schema, defaultSchema: "main" })) });
    },
    focus: () => view.focus(),
    close: () => view.destroy(),
  };
}
