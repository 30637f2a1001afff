// Times: "3 min ago" keeps ticking, the exact time is its title, in local time or UTC as the person chose; `x` shows
// the exact ones everywhere. The words are those of words.py.
import { on, store, whenDrawn } from "./page.js";

const UNITS = [[86_400, "d"], [3_600, "h"], [60, "min"]];

export function zone() {
  return store.get("paddock-zone") === "utc" ? "utc" : "local";
}

export function toggleZone() {
  store.set("paddock-zone", zone() === "utc" ? "local" : "utc");
  showZone();
  drawAll();
  document.dispatchEvent(new CustomEvent("paddock:zone"));
}

export function toggleExact() {
  store.set("paddock-exact", store.get("paddock-exact") === "yes" ? "no" : "yes");
  drawAll();
}

export function exact(at) {
  const two = (number) => String(number).padStart(2, "0");
  if (zone() === "utc") return `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  const offset = -at.getTimezoneOffset();
  const size = Math.abs(offset);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return `${day} ${clock} ${offset < 0 ? "−" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

function rough(seconds, more = 0) {
  for (const [size, unit] of UNITS) if (seconds >= size) return `${Math.floor(seconds / size + more)} ${unit}`;
  return `${Math.floor(seconds)} s`;
}

export function ago(at) {
  const seconds = (Date.now() - at) / 1000;
  if (Math.trunc(seconds) === 0) return "now";
  return seconds > 0 ? `${rough(seconds)} ago` : `in ${rough(-seconds, 0.5)}`;
}

function words(kind, at) {
  if (kind === "exact" || store.get("paddock-exact") === "yes") return exact(at);
  return kind === "since" ? rough(Math.max(0, (Date.now() - at) / 1000)) : ago(at);
}

function draw(element) {
  for (const time of element.querySelectorAll("time[data-time]")) {
    const at = new Date(time.dateTime);
    const text = words(time.dataset.time, at);
    if (time.textContent !== text) time.textContent = text;
    const title = exact(at);
    if (time.title !== title) time.title = title;
  }
}

function drawAll() {
  draw(document.body);
}

function showZone() {
  const button = document.getElementById("time-switch");
  if (!button) return;
  button.textContent = zone() === "utc" ? "UTC" : "Local time";
  button.setAttribute("aria-label", `Times are in ${zone() === "utc" ? "UTC. Switch to local time" : "local time. Switch to UTC"}`);
}

export function start() {
  on("#time-switch", "click", toggleZone);
  showZone();
  whenDrawn(draw);
  setInterval(() => document.hidden || drawAll(), 1_000);
}
