// The forms of exports and mappings: Ctrl Enter in a text field presses the button that only looks (data-submits), and
// a line that was refused leads to its place in the text (data-go-to-line).
import { on } from "../page.js";

on("textarea[data-submits]", "keydown", (event, field) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  document.getElementById(`${field.dataset.submits}-button`).click();
});

on("[data-go-to-line]", "click", (_, button) => {
  const field = document.getElementById(button.dataset.goTo);
  const lines = field.value.split("\n");
  const before = Math.min(Number(button.dataset.goToLine), lines.length) - 1;
  const start = lines.slice(0, before).reduce((sum, line) => sum + line.length + 1, 0);
  field.focus();
  field.setSelectionRange(start, start + lines[before].length);
  field.scrollTop = (field.scrollHeight * Math.max(0, before - 3)) / lines.length;
});
