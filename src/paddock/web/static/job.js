// The page of one job: its timeline under the pointer and the arrow keys, bands that grow, a rate and a time left out of
// successive reports, and the log's tail. What is drawn comes from the server; this only moves what moves by itself.
import * as live from "./live.js";
import { on, whenDrawn } from "./page.js";
import { exact } from "./times.js";

const TIME = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z/g;
const UNITS = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];

// As words.py says it: two units at most.
function duration(seconds) {
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  const whole = Math.round(seconds);
  const place = UNITS.findIndex(([size]) => whole >= size);
  const [size, unit] = UNITS[place];
  const next = UNITS[place + 1];
  const rest = next ? Math.floor((whole % size) / next[0]) : 0;
  return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${next[1]}` : ""}`;
}

// The timeline: a point tells its story in the line below.

const points = () => [...document.querySelectorAll(".timeline .point")].sort((a, b) => left(a) - left(b));
const left = (point) => point.getBoundingClientRect().left;

// The line is the server's until a point is looked at, and is again once it is not.
let summary = null;

function tell(point) {
  const line = document.querySelector("[data-story-line]");
  if (!line) return;
  if (point) {
    summary ??= line.innerHTML;
    line.textContent = point.dataset.story.replace(TIME, (at) => (Number.isNaN(Date.parse(at)) ? at : exact(new Date(at))));
  } else if (summary !== null) {
    line.innerHTML = summary;
    summary = null;
  }
}

function lookedAt() {
  return document.querySelector(".timeline .point:focus") ?? document.querySelector(".timeline .point:hover");
}

function step(event, point) {
  const all = points();
  const at = all.indexOf(point);
  const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  all[Math.min(all.length - 1, Math.max(0, next))].focus();
}

function timeline() {
  on(".timeline .point", "focusin", (_, point) => {
    points().forEach((other) => other.setAttribute("tabindex", other === point ? "0" : "-1"));
    tell(point);
  });
  on(".timeline .point", "pointerover", (_, point) => tell(point));
  on(".timeline", "pointerout", () => tell(document.querySelector(".timeline .point:focus")));
  on(".timeline .point", "focusout", () => tell(null));
  on(".timeline .point", "keydown", step);
}

// What grows: the last band, from the moment it was drawn, until its room is used up.

let drawnAt = performance.now();

function grow() {
  const seconds = (performance.now() - drawnAt) / 1000;
  const band = document.querySelector(".timeline [data-grows]");
  if (band) {
    band.dataset.from ??= Number.parseFloat(band.getAttribute("width"));
    const width = Number(band.dataset.from) + seconds * Number(band.dataset.grows);
    band.setAttribute("width", `${Math.min(width, Number(band.dataset.most)).toFixed(3)}%`);
    if (width >= Number(band.dataset.most)) live.refresh("course");
  }
  const label = document.querySelector(".timeline [data-since]");
  if (label) label.textContent = duration((Date.now() - new Date(label.dataset.since)) / 1000);
}

// Progress: reports are lossy and come when they come. Two of one attempt, some seconds apart, make a rate.

const LEAST_MS = 4_000;
const WINDOW_MS = 60_000;
const LONGEST_LEFT = 30 * 86_400;
let samples = [];

function sampled(card) {
  const { attempt, percent, rows, bytes } = card.dataset;
  const last = samples.at(-1);
  const now = { at: Date.now(), attempt, percent: Number(percent ?? NaN), rows: Number(rows ?? NaN), bytes: Number(bytes ?? NaN) };
  const back = last && (last.attempt !== attempt || now.percent < last.percent || now.rows < last.rows || now.bytes < last.bytes);
  if (back) samples = [];
  const same = last && !back && ["percent", "rows", "bytes"].every((name) => Object.is(last[name], now[name]));
  if (!same) samples.push(now);
  while (samples.length > 2 && now.at - samples[0].at > WINDOW_MS) samples.shift();
}

function perSecond(name) {
  const [first, last] = [samples[0], samples.at(-1)];
  if (!first || last.at - first.at < LEAST_MS) return null;
  // Up to now, not to the last report: when none comes any more the rate falls.
  const rate = (last[name] - first[name]) / ((Math.max(last.at, Date.now() - LEAST_MS) - first.at) / 1000);
  return Number.isFinite(rate) && rate > 0 ? rate : null;
}

function size(count) {
  let unit = "B";
  for (const next of ["kB", "MB", "GB", "TB"]) {
    if (count < 1000) break;
    count /= 1000;
    unit = next;
  }
  return unit === "B" ? `${count.toFixed(0)} B` : `${count.toFixed(1)} ${unit}`;
}

function showRate() {
  const card = document.querySelector("[data-progress]");
  if (!card) return;
  const [rows, bytes, percent] = ["rows", "bytes", "percent"].map(perSecond);
  const rates = [];
  if (rows) rates.push(`${rows.toLocaleString("en", { maximumFractionDigits: rows < 10 ? 1 : 0 })} rows/s`);
  if (bytes) rates.push(`${size(bytes)}/s`);
  if (rates.length) card.querySelector("[data-rate]").textContent = rates.join(", ");
  const seconds = percent === null ? Infinity : (100 - samples.at(-1).percent) / percent;
  if (seconds > 0 && seconds <= LONGEST_LEFT) card.querySelector("[data-left]").textContent = `about ${duration(Math.max(1, Math.round(seconds)))} left`;
}

// The log: what came since, asked for while somebody can see it. Workers send theirs once a second.

const SOON_MS = 1_000;
const LATE_MS = 8_000;
const LAST_LOOKS = 4; // the last lines come after the end
const MOST_LINES = 5_000;

const log = {
  box: null,
  lines: null,
  seen: true,
  pause: SOON_MS,
  timer: null,
  left: LAST_LOOKS,
  unread: 0,
};

const follow = () => log.box.querySelector("[data-log-follow]");
const following = () => follow().getAttribute("aria-pressed") === "true";
const atEnd = () => log.lines.scrollHeight - log.lines.scrollTop - log.lines.clientHeight < 24;
const ended = () => document.querySelector("[data-ended]")?.dataset.ended === "yes";

function setFollowing(yes) {
  follow().setAttribute("aria-pressed", String(yes));
  if (!yes) return;
  log.lines.scrollTop = log.lines.scrollHeight;
  log.unread = 0;
  showUnread();
}

function showUnread() {
  const note = log.box.querySelector("[data-log-new]");
  note.hidden = log.unread === 0;
  note.textContent = log.unread === 1 ? "1 new line" : `${log.unread} new lines`;
}

async function look() {
  log.timer = null;
  if (document.hidden || !log.seen || live.currentState() === "paused") return;
  const found = await fetchLines();
  if (found === null || found > 0) log.pause = SOON_MS;
  else log.pause = Math.min(LATE_MS, log.pause * 2);
  if (ended()) log.left -= 1;
  if (log.left > 0) lookIn(ended() ? SOON_MS : log.pause);
}

function lookIn(milliseconds) {
  clearTimeout(log.timer);
  log.timer = setTimeout(look, milliseconds);
}

async function fetchLines() {
  const query = log.box.dataset.after ? `?${new URLSearchParams({ after: log.box.dataset.after })}` : "";
  try {
    const answer = await fetch(log.box.dataset.log + query, { headers: { "x-paddock-regions": "lines" }, cache: "no-store" });
    if (!answer.ok) return 0;
    return append((await answer.json()).regions.lines);
  } catch {
    return 0;
  }
}

function append(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const content = template.content;
  const place = content.querySelector("span[data-after]");
  if (place) log.box.dataset.after = place.dataset.after;
  place?.remove();
  const first = content.querySelector(".sep[data-attempt]");
  const last = [...log.lines.querySelectorAll(".sep[data-attempt]")].at(-1);
  if (first && last && first.dataset.attempt === last.dataset.attempt) first.remove();
  const count = content.querySelectorAll(".line").length;
  if (!count) return 0;
  log.box.querySelector(".log-empty").hidden = true;
  log.lines.append(content);
  while (log.lines.childElementCount > MOST_LINES) log.lines.firstElementChild.remove();
  if (following()) {
    log.lines.scrollTop = log.lines.scrollHeight;
  } else {
    log.unread += count;
    showUnread();
  }
  return count;
}

function startLog() {
  log.box = document.getElementById("log");
  log.lines = document.getElementById("log-lines");
  if (!log.box) return;
  log.lines.querySelector("span[data-after]")?.remove();
  setFollowing(true);
  on("[data-log-follow]", "click", () => setFollowing(!following()));
  // Whoever scrolls up reads: it stays where it is until they come back to the end.
  log.lines.addEventListener("scroll", () => {
    if (following() !== atEnd()) setFollowing(atEnd());
  });
  new IntersectionObserver(([entry]) => {
    log.seen = entry.isIntersecting;
    if (log.seen && log.left > 0 && log.timer === null) lookIn(0);
  }).observe(log.box);
  document.addEventListener("visibilitychange", () => document.hidden || lookIn(0));
  live.on("state", (state) => state === "live" && lookIn(SOON_MS));
  live.on("jobs", () => {
    log.pause = SOON_MS;
    log.left = LAST_LOOKS;
    lookIn(SOON_MS / 2);
  });
  if (ended()) log.left = 0;
  else lookIn(SOON_MS);
}

// What nobody tells of: a wait that grows, a worker that is silent, a cleanup that goes on in a job of its own.

let again = null;

function plan() {
  clearTimeout(again);
  const seconds = Number(document.querySelector("[data-look-again]")?.dataset.lookAgain);
  if (seconds) again = setTimeout(() => (document.hidden || live.currentState() === "paused" ? plan() : live.refresh("job")), seconds * 1000);
  const moving = ended() && document.querySelector("#related [data-related=moving]") !== null;
  for (const id of ["related", "course"]) {
    const region = document.getElementById(id);
    region.dataset.live = moving ? "clock" : "jobs";
    region.dataset.liveEvery = moving || id === "related" ? "5" : "1";
  }
}

timeline();
startLog();
whenDrawn((region) => {
  if (region === document.body || region.id === "course") {
    drawnAt = performance.now();
    for (const band of document.querySelectorAll(".timeline [data-grows]")) delete band.dataset.from;
    summary = null;
    tell(lookedAt());
  }
  if (region === document.body || region.id === "progress") {
    const card = document.querySelector("[data-progress]");
    if (card) sampled(card);
    showRate();
  }
  if (region === document.body || region.id === "job" || region.id === "related") plan();
  // Its end, or a retry of it: what came of it, and what can be typed now.
  if (region.id === "job" && ended()) live.refresh("related", "commands");
});
setInterval(() => {
  if (document.hidden || live.currentState() === "paused") return;
  grow();
  showRate();
}, 1_000);
