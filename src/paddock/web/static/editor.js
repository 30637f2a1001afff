// A text field that becomes an editor: line numbers, colours, completion, and a mark where its text was refused.
//
//   import * as editor from "../editor.js";
//   const field = document.getElementById("field-sql");
//   editor.edit(field, { language: sql, complete: (context) => … });
//   editor.write(field, "SELECT 1");        // as somebody would who types it
//   editor.goTo(field, 3);                  // shows and selects the third line
//
// The field stays the form's: the editor writes each change into it and takes over what others write into it, both told
// by its `input`. Without scripts it is what it was. data-submits="run": Ctrl Enter presses #run-button.
// data-marked-by="answer": an answer in #answer that has places (data-go-to-line, data-go-to-column, data-go-to: the
// field; of a warning inside data-warning) marks them in the text until somebody edits there.
import {
  autocompletion,
  bracketMatching,
  completionKeymap,
  defaultKeymap,
  EditorState,
  EditorView,
  highlightSpecialChars,
  history,
  historyKeymap,
  indentUnit,
  keymap,
  lineNumbers,
  placeholder,
} from "./vendor/codemirror.min.js";
import { look } from "./editor-look.js";
import { marking, showMarks } from "./editor-marks.js";

const TYPING_PAUSE_MS = 200; // completions are asked for when somebody pauses, not at each letter
const MOST_OPTIONS = 100;

const views = new WeakMap();

export function edit(field, { language = [], complete = null } = {}) {
  const view = new EditorView({
    state: EditorState.create({
      doc: field.value,
      extensions: [
        lineNumbers(),
        highlightSpecialChars(), // one that turns the text around shows itself, and turns nothing
        history(),
        bracketMatching(),
        indentUnit.of("  "),
        EditorView.lineWrapping,
        look,
        marking,
        language,
        complete ? completing(complete) : [],
        field.placeholder ? placeholder(field.placeholder) : [],
        keymap.of([...submitting(field), ...completionKeymap, ...defaultKeymap, ...historyKeymap]),
        EditorView.domEventHandlers({ beforeinput: replaceSelected }),
        EditorView.contentAttributes.of(named(field)),
        EditorView.updateListener.of((update) => update.docChanged && writeThrough(field, update.state)),
      ],
    }),
  });
  views.set(field, view);
  view.dom.style.setProperty("--rows", field.rows);
  // The browser gives an autofocus when it first draws the page, which may be after this.
  const hadFocus =
    document.activeElement === field || (field.autofocus && document.activeElement === document.body);
  field.hidden = true;
  field.after(view.dom);
  followField(field, view);
  if (hadFocus) view.focus();
}

export function write(field, text) {
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  focus(field);
}

export function focus(field) {
  (views.get(field) ?? field).focus();
}

export function goTo(field, number) {
  const view = views.get(field);
  if (!view) return;
  const line = view.state.doc.line(Math.min(number, view.state.doc.lines));
  view.focus();
  view.dispatch({
    selection: { anchor: line.from, head: line.to },
    effects: EditorView.scrollIntoView(line.from, { y: "center" }),
  });
}

function completing(complete) {
  return autocompletion({
    override: [async (context) => worthShowing(context, await complete(context))],
    icons: false,
    activateOnTypingDelay: TYPING_PAUSE_MS,
    maxRenderedOptions: MOST_OPTIONS,
  });
}

// No list for who has gone on meanwhile, and none that offers only what is written already.
function worthShowing(context, found) {
  if (!found || (context.view && !context.view.hasFocus)) return null;
  const written = context.state.sliceDoc(found.from, context.pos);
  if (!context.explicit && isWhole(found, written)) return null;
  const { validFor } = found;
  const stillFits = (text) => validFor.test(text) && text.startsWith(written) && !isWhole(found, text);
  return { ...found, validFor: validFor && stillFits };
}

function isWhole({ options }, written) {
  const text = written.toLowerCase();
  const fitting = options.filter(({ label }) => label.toLowerCase().startsWith(text));
  return fitting.length === 1 && fitting[0].label.toLowerCase() === text;
}

function submitting(field) {
  const button = () => document.getElementById(`${field.dataset.submits}-button`);
  return field.dataset.submits ? [{ key: "Mod-Enter", run: () => (button()?.click(), true) }] : [];
}

// What the field tells those who do not see it, its editor tells. A label names only what is hidden now.
function named(field) {
  const attributes = { spellcheck: "false", dir: "ltr" };
  const label = field.labels[0];
  if (label) {
    label.id ||= `${field.id}-label`;
    label.removeAttribute("for");
    label.addEventListener("click", () => focus(field));
    attributes["aria-labelledby"] = label.id;
  }
  for (const name of ["aria-describedby", "aria-invalid"]) {
    if (field.hasAttribute(name)) attributes[name] = field.getAttribute(name);
  }
  if (field.required) attributes["aria-required"] = "true";
  return attributes;
}

// Where text of several lines comes in, or replaces some, Chromium mends the lines with style attributes, which the policy
// refuses. What a key does, a paste or a drop, the editor does by itself. Text that comes whole asks for no completion.
function replaceSelected(event, view) {
  const { anchorNode, anchorOffset, focusNode, focusOffset, isCollapsed } = document.getSelection();
  const text = event.data ?? "";
  if (event.inputType !== "insertText" || !anchorNode || (isCollapsed && text.length < 2)) return false;
  const places = [view.posAtDOM(anchorNode, anchorOffset), view.posAtDOM(focusNode, focusOffset)];
  const [from, insert] = [Math.min(...places), view.state.toText(text)];
  view.dispatch({
    changes: { from, to: Math.max(...places), insert },
    selection: { anchor: from + insert.length },
    userEvent: text.length < 2 ? "input.type" : "input",
    scrollIntoView: true,
  });
  event.preventDefault();
  return true;
}

function writeThrough(field, state) {
  const text = state.doc.toString();
  if (field.value === text) return;
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

function followField(field, view) {
  const takeOver = () => {
    if (view.state.doc.toString() === field.value) return;
    view.dispatch({
      changes: { from: 0, to: view.state.doc.length, insert: field.value },
      selection: { anchor: field.value.length },
    });
  };
  field.addEventListener("input", takeOver);
  field.form?.addEventListener("reset", () => setTimeout(takeOver));
  addEventListener("pageshow", takeOver); // a browser that goes back fills in what stood there
  followProblems(field, view);
  const answers = document.getElementById(field.dataset.markedBy);
  if (!answers) return;
  showMarks(view, answers, field.id);
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.target === answers) showMarks(view, answers, field.id);
  });
}

// The browser's own bubble has no place to point to: its field is hidden.
function followProblems(field, view) {
  const said = document.createElement("p");
  said.className = "problem";
  said.setAttribute("role", "alert");
  field.addEventListener("invalid", (event) => {
    event.preventDefault();
    said.textContent = field.validationMessage;
    view.dom.after(said);
    view.focus();
  });
  field.addEventListener("input", () => said.remove());
}
