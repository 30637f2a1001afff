// What the dashboard's scripts use of CodeMirror; scripts/editor makes one file of it, vendor/codemirror.min.js.
import { StyleModule } from "style-mod";

export { autocompletion, completionKeymap } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { SQLDialect } from "@codemirror/lang-sql";
export { bracketMatching, HighlightStyle, indentUnit, StreamLanguage, syntaxHighlighting, syntaxTree } from "@codemirror/language";
export { yaml } from "@codemirror/legacy-modes/mode/yaml";
export { EditorState, RangeSet, StateEffect, StateField } from "@codemirror/state";
export { Decoration, EditorView, GutterMarker, gutterLineClass, highlightSpecialChars, keymap, lineNumbers, placeholder } from "@codemirror/view";
export { tags } from "@lezer/highlight";

// CodeMirror writes its rules into a <style> element, which the dashboard's policy refuses. A sheet made by a script is
// no inline style. Modules come in the order of their precedence, and later sheets win.
const sheets = new Map();

StyleModule.mount = (root, modules) => {
  for (const module of [modules].flat()) {
    if (sheets.has(module)) continue;
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(module.getRules());
    sheets.set(module, sheet);
  }
  const known = [modules].flat().map((module) => sheets.get(module));
  root.adoptedStyleSheets = [...root.adoptedStyleSheets.filter((sheet) => !known.includes(sheet)), ...known];
};
