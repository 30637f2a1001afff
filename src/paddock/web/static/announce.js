// What screen readers are told: the text of [data-announce], the page's summary, when it changed, at most every 10 s.
// data-announce="…" is told instead of a text that shows times, which change all the time.
import { whenDrawn } from "./page.js";

const EVERY_MS = 10_000;
let said = null;
let saidAt = -Infinity;
let timer = null;

// `now` is for the answer to something the person just did.
export function announce(text, now = false) {
  clearTimeout(timer);
  const left = now ? 0 : saidAt + EVERY_MS - Date.now();
  if (left > 0) {
    timer = setTimeout(() => announce(text), left);
    return;
  }
  saidAt = Date.now();
  document.getElementById("announcer").textContent = text;
}

function summary() {
  const found = document.querySelector("[data-announce]");
  return found ? (found.dataset.announce || found.textContent).trim().replace(/\s+/g, " ") : null;
}

export function start() {
  said = summary();
  whenDrawn(() => {
    const text = summary();
    if (text === null || text === said) return;
    said = text;
    announce(text);
  });
}
