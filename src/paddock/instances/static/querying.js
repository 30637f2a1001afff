// The query page: the editor and what writes into it, the history of this browser, and the three forms of an answer.
import * as editor from "../editor.js";
import { on } from "../page.js";
import { completer, cypher } from "./cypher.js";
import { draw } from "./graph.js";

const field = document.getElementById("field-query");
const schema = JSON.parse(document.getElementById("query-schema").textContent);
const answer = document.getElementById("answer");
const KEPT = 30;
const storageKey = "paddock-queries";

editor.edit(field, { language: cypher, complete: completer(schema) });

on("[data-write]", "click", (_, button) => {
  write(button.dataset.write);
});

on("#explain-button", "click", () => {
  if (!/^\s*(explain|profile)\b/i.test(field.value)) write(`EXPLAIN ${field.value}`);
  document.getElementById("run-button").click();
});

on("[data-go-to-line]", "click", (_, button) => {
  editor.goTo(field, Number(button.dataset.goToLine));
});

function write(text) {
  editor.write(field, text);
}

function history() {
  try {
    const kept = JSON.parse(localStorage.getItem(storageKey) ?? "[]");
    return Array.isArray(kept) ? kept.filter((one) => typeof one === "string") : [];
  } catch {
    return [];
  }
}

function remember(text) {
  const kept = [text, ...history().filter((one) => one !== text)].slice(0, KEPT);
  try {
    localStorage.setItem(storageKey, JSON.stringify(kept));
  } catch {
    // A browser that keeps nothing has no history.
  }
  showHistory();
}

function showHistory() {
  const section = document.getElementById("history");
  const list = section.querySelector("ul");
  const kept = history();
  section.hidden = kept.length === 0;
  list.replaceChildren(
    ...kept.slice(0, 10).map((text) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.className = "quiet-button clip";
      button.dataset.write = text;
      button.textContent = text.replaceAll(/\s+/g, " ").slice(0, 80);
      item.append(button);
      return item;
    }),
  );
}

on("[role=tab]", "click", (_, tab) => show(tab.dataset.form));
on("[role=tab]", "keydown", (event, tab) => {
  const tabs = [...answer.querySelectorAll("[role=tab]:not([disabled])")];
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
  next.focus();
  show(next.dataset.form);
});

function show(form) {
  for (const tab of answer.querySelectorAll("[role=tab]")) {
    const chosen = tab.dataset.form === form;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
  }
  for (const panel of answer.querySelectorAll("[data-shows]")) panel.hidden = panel.dataset.shows !== form;
  if (form === "graph") begin();
}

function begin() {
  const place = answer.querySelector(".graph");
  if (place === null || place.dataset.drawn) return;
  place.dataset.drawn = "yes";
  draw(place, JSON.parse(place.dataset.graph), expand, write);
}

async function expand(place, node) {
  const body = new FormData();
  body.set("csrf", document.querySelector("#query-form [name=csrf]").value);
  body.set("label", node.label);
  body.set("key", node.key);
  const response = await fetch(place.dataset.expand, { method: "POST", body });
  if (!response.ok) throw new Error("The neighbours could not be fetched.");
  return response.json();
}

const runButton = document.getElementById("run-button");
const cancelButton = document.getElementById("cancel-button");

document.body.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target === runButton) cancelButton.hidden = false;
});
document.body.addEventListener("htmx:afterRequest", (event) => {
  if (event.target === runButton) cancelButton.hidden = true;
});
on("#cancel-button", "click", () => {
  runButton.dispatchEvent(new CustomEvent("htmx:abort", { bubbles: true, detail: { elt: runButton } }));
  cancelButton.hidden = true;
  answer.replaceChildren(Object.assign(document.createElement("p"), { className: "sentence", textContent: "Cancelled." }));
  editor.focus(field);
});

document.body.addEventListener("htmx:afterSwap", (event) => {
  if (event.target.id !== "answer") return;
  if (answer.querySelector("[role=tab]")) remember(field.value);
});
showHistory();
