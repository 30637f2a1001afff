// The switch between the system's theme, light and dark; theme-early.js applies it on the next page.
import { store, on } from "./page.js";

const NEXT = { system: "light", light: "dark", dark: "system" };
const WORDS = { system: "System", light: "Light", dark: "Dark" };

export function theme() {
  return store.get("paddock-theme") ?? "system";
}

export function setTheme(name) {
  if (name === "system") {
    store.remove("paddock-theme");
    delete document.documentElement.dataset.theme;
  } else {
    store.set("paddock-theme", name);
    document.documentElement.dataset.theme = name;
  }
  show();
  document.dispatchEvent(new CustomEvent("paddock:theme"));
}

export function nextTheme() {
  setTheme(NEXT[theme()]);
}

function show() {
  const button = document.getElementById("theme-switch");
  if (!button) return;
  button.querySelector("span").textContent = WORDS[theme()];
  button.setAttribute("aria-label", `Theme: ${WORDS[theme()]}. Switch to ${WORDS[NEXT[theme()]]}`);
}

export function start() {
  on("#theme-switch", "click", nextTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    document.dispatchEvent(new CustomEvent("paddock:theme")),
  );
  show();
}
