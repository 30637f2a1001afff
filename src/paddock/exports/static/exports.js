// The forms of exports and mappings: SQL and YAML are written in editors, Ctrl Enter in another text field presses the button
// that only looks (data-submits), and a line that was refused leads to its place in the text (data-go-to-line).
import * as editor from "../editor.js";
import { on } from "../page.js";
import { StreamLanguage, yaml } from "../vendor/codemirror.min.js";
import { completer, sql } from "./sql.js";

const sqlFields = ["field-sql", "field-add_sql"].map((id) => document.getElementById(id)).filter(Boolean);
const yamlField = document.getElementById("field-yaml");
const engineField = document.querySelector("[name=engine]");

// What the form says of the engine: one that is given, or the option that is chosen. Without a role that it needs it is asked
// for nothing.
function chosen() {
  const { type = "", default: path = "", takesRole, requiresRole } = (engineField?.selectedOptions?.[0] ?? engineField)?.dataset ?? {};
  const role = takesRole === undefined ? "" : (document.querySelector("[name=role]")?.value ?? "");
  const answers = role !== "" || requiresRole === undefined;
  return { name: answers ? (engineField?.value ?? "") : "", type, default: path, role };
}

for (const field of sqlFields) editor.edit(field, { language: sql, complete: completer(chosen) });
if (yamlField) editor.edit(yamlField, { language: StreamLanguage.define(yaml) });

on("textarea[data-submits]", "keydown", (event, field) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  document.getElementById(`${field.dataset.submits}-button`).click();
});

on("[data-go-to-line]", "click", (_, button) => {
  editor.goTo(document.getElementById(button.dataset.goTo), Number(button.dataset.goToLine));
});
