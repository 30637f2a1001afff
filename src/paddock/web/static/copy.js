// Buttons that copy: data-copy="text", or data-copy-json for the tree beside it (json_tree.py draws it so that its
// text is JSON again), or data-copy-from="#id".
import { announce } from "./announce.js";
import { on } from "./page.js";

const SHOWN_MS = 1_500;

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // over plain http there is no clipboard
  }
}

function copyBySelection(text) {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden";
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  return copied;
}

function textFor(button) {
  if ("copy" in button.dataset) return button.dataset.copy;
  if (button.dataset.copyFrom) return document.querySelector(button.dataset.copyFrom).textContent;
  const text = button.closest(".document").querySelector(".json").textContent;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function start() {
  on("[data-copy], [data-copy-json], [data-copy-from]", "click", async (_, button) => {
    const copied = await copy(textFor(button));
    announce(copied ? "Copied." : "It could not be copied.", true);
    button.dataset.copied = copied ? "Copied" : "Not copied";
    setTimeout(() => delete button.dataset.copied, SHOWN_MS);
  });
}
