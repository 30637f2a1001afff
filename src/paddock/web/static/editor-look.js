// How an editor looks: the tokens of style.css, so that it follows the theme. Sizes in a page stand in style.css.
import { EditorView, HighlightStyle, syntaxHighlighting, tags } from "./vendor/codemirror.min.js";

const box = EditorView.theme({
  "&": {
    maxHeight: "70vh",
    border: "1px solid var(--edge)",
    borderRadius: "var(--radius)",
    backgroundColor: "var(--paper)",
    color: "var(--ink)",
    fontSize: "12.5px",
    overflow: "hidden",
  },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-content, .cm-gutter": { minHeight: "calc(var(--rows) * 1.5em + 8px)" },
  ".cm-content": { padding: "4px 0", caretColor: "var(--ink)", tabSize: "2" },
  ".cm-content:focus-visible": { outline: "none" },
  ".cm-line": { padding: "0 8px" },
  ".cm-specialChar": { color: "var(--bad)" },
  ".cm-placeholder": { color: "var(--soft)" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--soft)", borderRight: "1px solid var(--line)" },
  ".cm-lineNumbers .cm-gutterElement": { minWidth: "28px", padding: "0 6px 0 4px" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--accent-wash)", outline: "1px solid var(--accent)" },
  "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "var(--bad-wash)" },
  ".cm-line.cm-wrong-line": { backgroundColor: "var(--bad-wash)" },
  ".cm-gutterElement.cm-wrong-line": { backgroundColor: "var(--bad-wash)", color: "var(--bad)", fontWeight: "700" },
  ".cm-line.cm-doubtful-line": { backgroundColor: "var(--wait-wash)" },
  ".cm-gutterElement.cm-doubtful-line": { backgroundColor: "var(--wait-wash)", color: "var(--wait)", fontWeight: "700" },
  ".cm-wrong": { textDecoration: "underline wavy var(--bad)", textUnderlineOffset: "3px" },
});

const list = EditorView.theme({
  ".cm-tooltip": {
    backgroundColor: "var(--raised)",
    color: "var(--ink)",
    border: "1px solid var(--edge)",
    borderRadius: "var(--radius)",
    boxShadow: "0 6px 20px var(--shadow)",
    overflow: "hidden",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "12.5px", maxHeight: "14em", minWidth: "min(220px, 80vw)", maxWidth: "min(560px, 92vw)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { display: "flex", gap: "16px", padding: "2px 8px", lineHeight: "1.5" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent-wash)", color: "var(--ink)" },
  ".cm-completionLabel": { overflow: "hidden", textOverflow: "ellipsis", whiteSpace: "nowrap" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700", color: "var(--accent)" },
  ".cm-completionDetail": { marginLeft: "auto", fontStyle: "normal", color: "var(--soft)", maxWidth: "20em", overflow: "hidden", textOverflow: "ellipsis", whiteSpace: "nowrap" },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.string, tags.character], color: "var(--good)" },
  { tag: tags.special(tags.string), color: "var(--ink)" }, // a name in quotes
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--busy)" },
  { tag: [tags.typeName, tags.labelName, tags.className, tags.definition(tags.propertyName)], color: "var(--wait)" },
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
  { tag: tags.meta, color: "var(--soft)" },
  { tag: [tags.function(tags.variableName), tags.standard(tags.name)], color: "var(--busy)" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

export const look = [box, list, syntaxHighlighting(colours)];
