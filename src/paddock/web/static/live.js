// Keeps a page true: one batched stream of changed jobs for each visible tab.
//
//   import * as live from "./live.js";
//   live.on("jobs", (jobs) => …);      jobs changed: their newest states, at most once a second; of each its id, and
//                                      what <body data-fields="id,status"> names
//   live.on("reset", () => …);         something was missed, or we poll: look at everything again
//   live.on("state", (state) => …);    live, paused, polling, reconnecting, ended
//   live.refresh("rows");              fetch a region now
//   live.stir("rows");                 fetch it as soon as it may be fetched again
//
// Without a script of its own a page marks a region, which is then fetched and morphed into place:
//
//   <section id="rows" data-live="jobs" data-live-every="3">{% block rows %}…{% endblock %}</section>
//
// data-live="jobs": when a job changed that the stream tells of, at most once in so many seconds; "clock": every so
// many seconds; "asked": when the page's own script says so, and when everything is looked at again. The id is the name
// of the block (see frame.py). All regions that are due share one request, with what each adds (data-live-query).
// data-live-rest="hover": not while the pointer is on it, so that no row moves from under it.
// Where many pages are open the server asks each to rest longer than that (x-paddock-rest); what the stream itself
// tells comes every second all the same, and a page that watches one job does not rest.
// <body data-stream="job=…"> narrows the stream; "none" opens no stream (regions by the clock still turn).
//
// Nothing is missed: the page carries the place in the stream at which it was read (data-place), each message the
// place after it, and every reconnect names the last. What the server cannot tell any more it answers with `reset`.
// A stream that answers with an error or brings nothing (a proxy that buffers) is replaced by a poll, and tried again.

import { drawn, on as listen, store, url } from "./page.js";
import { morph } from "./morph.js";

const POLL_MS = 5_000;
const FIRST_BYTES_MS = 6_000; // the server's first bytes come at once: later means that something holds them back
const SILENCE_MS = 40_000; // it says something every 15 s
const PAUSES_MS = [500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000];
const DEFAULT_EVERY = 3;
const SHOWN_AFTER_MS = 1_000; // a cut that is mended sooner is not worth a word

const WORDS = {
  live: "Live",
  paused: "Paused",
  polling: "Polling every 5 s",
  reconnecting: "Reconnecting…",
  ended: "Signed out: reload",
  off: "Not live",
};

const listeners = new Map();
let unheard = false; // jobs changed before any script listened: one that loads slowly must not miss it
let place = null;
let state = "off";
let streaming = null; // the AbortController of the stream, while this tab is visible and not paused
let failures = 0;
let pollTimer = null;
let stateTimer = null;

export function on(name, handle) {
  if (!listeners.has(name)) listeners.set(name, new Set());
  listeners.get(name).add(handle);
  if (name === "jobs" && unheard) {
    unheard = false;
    lookAgain();
  }
  return () => listeners.get(name).delete(handle);
}

function tell(name, value) {
  if (name === "jobs" && !listeners.has(name)) unheard = true;
  for (const handle of listeners.get(name) ?? []) handle(value);
}

export function currentState() {
  return state;
}

function setState(next) {
  if (next === "reconnecting" && state === "live") {
    stateTimer ??= setTimeout(() => showState(next), SHOWN_AFTER_MS);
  } else {
    showState(next);
  }
}

function showState(next) {
  clearTimeout(stateTimer);
  stateTimer = null;
  if (next === state) return;
  state = next;
  const shown = document.getElementById("live-state");
  if (shown) {
    shown.textContent = WORDS[state];
    shown.parentElement.dataset.state = state;
    const button = document.getElementById("live-switch");
    button.textContent = state === "paused" ? "Resume" : "Pause";
    button.setAttribute("aria-label", state === "paused" ? "Resume live updates" : "Pause live updates");
  }
  tell("state", state);
}

// The stream

function wait(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

const jittered = (milliseconds) => milliseconds * (0.5 + Math.random());

async function keepStreaming(signal) {
  while (!signal.aborted) {
    const outcome = await stream(signal);
    if (signal.aborted) return;
    if (outcome === 401 || outcome === 403) {
      stopPolling();
      setState("ended");
      return;
    }
    failures += 1;
    if (state !== "polling") setState("reconnecting");
    // Cut off once: reconnect. An error status, silence or a second failure: poll meanwhile.
    if (outcome !== "cut" || failures > 1) startPolling();
    const pause = PAUSES_MS[Math.min(failures - 1, PAUSES_MS.length - 1)];
    await wait(jittered(pause), signal);
  }
}

// Reads until it ends. Answers with the status when that was no stream, "silent" when nothing came, else "cut".
async function stream(signal) {
  const own = new AbortController();
  signal.addEventListener("abort", () => own.abort(), { once: true });
  let outcome = "cut";
  let watchdog = null;
  const expect = (milliseconds, otherwise) => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => ((outcome = otherwise), own.abort()), milliseconds);
  };
  try {
    expect(FIRST_BYTES_MS, "silent");
    const response = await fetch(streamAddress(), { signal: own.signal, headers: { accept: "text/event-stream" }, cache: "no-store" });
    if (!response.ok) return response.status;
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return "silent";
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return outcome;
      expect(SILENCE_MS, "cut");
      opened();
      text += value;
      const messages = text.split("\n\n");
      text = messages.pop();
      messages.forEach(take);
    }
  } catch {
    return outcome;
  } finally {
    clearTimeout(watchdog);
    own.abort();
  }
}

function streamAddress() {
  const query = new URLSearchParams(document.body.dataset.stream ?? "");
  query.set("batch", "1");
  query.set("fields", document.body.dataset.fields);
  if (place) query.set("last_event_id", place);
  return url(`/api/stream?${query}`);
}

function opened() {
  failures = 0;
  stopPolling();
  setState("live");
}

function take(message) {
  let name = "message";
  const data = [];
  for (const line of message.split("\n")) {
    if (line.startsWith("id: ")) place = line.slice(4);
    else if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  if (name === "jobs") {
    mark("jobs");
    tell("jobs", JSON.parse(data.join("\n")).jobs);
  } else if (name === "reset") {
    lookAgain();
  }
}

// The poll

function startPolling() {
  if (pollTimer === null) pollTimer = setTimeout(poll, jittered(POLL_MS / 5));
}

function stopPolling() {
  clearTimeout(pollTimer);
  pollTimer = null;
}

async function poll() {
  const answered = await fetchRegions(allRegions().filter((region) => !resting(region)));
  if (pollTimer === null) return;
  if (answered) {
    setState("polling");
    tell("reset");
  } else if (state !== "ended") {
    setState("reconnecting");
  }
  pollTimer = setTimeout(poll, POLL_MS * (0.9 + Math.random() * 0.2));
}

// The regions

const due = new Map(); // a region's id -> when it may be fetched
const fetchedAt = new Map();
let turning = null;
let fetching = false;
let rest = 0; // seconds that the server asks for between two fetches

function allRegions() {
  return [...document.querySelectorAll("[data-live][id]")];
}

function everyMs(region) {
  const own = Number(region.dataset.liveEvery) || DEFAULT_EVERY;
  const onlyOneJob = (document.body.dataset.stream ?? "").startsWith("job=");
  return 1_000 * (onlyOneJob ? own : Math.max(own, rest));
}

// Text that somebody is selecting, or a field that somebody fills in, is not taken away from under them.
function resting(region) {
  const selection = getSelection();
  if (!selection.isCollapsed && region.contains(selection.anchorNode)) return true;
  if (region.dataset.liveRest === "hover" && region.matches(":hover")) return true;
  const focused = document.activeElement;
  return region.contains(focused) && focused.matches("input:not([type=checkbox]), select, textarea");
}

function mark(what) {
  stir(...allRegions().filter((region) => region.dataset.live === what).map((region) => region.id));
}

export function stir(...ids) {
  for (const region of allRegions()) {
    if (!ids.includes(region.id) || due.has(region.id)) continue;
    const earliest = (fetchedAt.get(region.id) ?? 0) + everyMs(region);
    // Many tabs hear of the same change at the same moment.
    due.set(region.id, Math.max(earliest, Date.now()) + Math.random() * Math.min(500, everyMs(region) / 5));
  }
  turn();
}

export function refresh(...ids) {
  for (const id of ids) due.set(id, 0);
  turn();
}

function lookAgain() {
  for (const region of allRegions()) due.set(region.id, Date.now() + Math.random() * 500);
  turn();
  tell("reset");
}

function turn() {
  clearTimeout(turning);
  if (!due.size || fetching) return;
  const next = Math.min(...due.values());
  turning = setTimeout(fetchDue, Math.max(0, next - Date.now()));
}

async function fetchDue() {
  const now = Date.now();
  const ready = allRegions().filter((region) => due.get(region.id) <= now);
  for (const id of due.keys()) if (!document.getElementById(id)) due.delete(id);
  for (const region of ready.filter(resting)) due.set(region.id, now + 1_000);
  const wanted = ready.filter((region) => !resting(region));
  wanted.forEach((region) => due.delete(region.id));
  if (wanted.length && !(await fetchRegions(wanted))) {
    wanted.forEach((region) => due.set(region.id, Date.now() + everyMs(region)));
  }
  turn();
}

function addressFor(wanted) {
  const address = new URL(location.href);
  for (const region of wanted) {
    new URLSearchParams(region.dataset.liveQuery).forEach((value, name) => address.searchParams.set(name, value));
  }
  return address;
}

async function fetchRegions(wanted) {
  const ids = wanted.map((region) => region.id);
  fetching = true;
  try {
    const response = await fetch(addressFor(wanted), {
      headers: { "x-paddock-regions": ids.join(",") || "standing", accept: "application/json" },
      cache: "no-store",
    });
    if (response.status === 401) {
      setState("ended");
      streaming?.abort();
      return false;
    }
    if (!response.ok || !response.headers.get("content-type")?.startsWith("application/json")) return false;
    rest = Number(response.headers.get("x-paddock-rest")) || 0;
    const { regions } = await response.json();
    ids.forEach((id) => fetchedAt.set(id, Date.now()));
    for (const [id, html] of Object.entries(regions)) {
      const region = document.getElementById(id);
      if (!region) continue;
      morph(region, html);
      drawn(region);
    }
    return true;
  } catch {
    return false;
  } finally {
    fetching = false;
    turn(); // what became due meanwhile
  }
}

// Starting and stopping

function connect() {
  if (streaming || document.hidden || paused()) return;
  streaming = new AbortController();
  failures = 0;
  if (document.body.dataset.stream === "none") setState("off");
  else void keepStreaming(streaming.signal);
  turn();
}

function disconnect() {
  streaming?.abort();
  streaming = null;
  stopPolling();
  clearTimeout(turning);
}

function paused() {
  return store.get("paddock-paused", "sessionStorage") === "yes";
}

export function pause() {
  store.set("paddock-paused", "yes", "sessionStorage");
  disconnect();
  setState("paused");
}

export function resume() {
  store.remove("paddock-paused", "sessionStorage");
  setState(document.body.dataset.stream === "none" ? "off" : "reconnecting");
  connect();
}

export function togglePause() {
  if (paused()) resume();
  else pause();
}

export function start() {
  place = document.body.dataset.place || null;
  listen("#live-switch", "click", togglePause);
  if (paused()) setState("paused");
  connect();
  setInterval(() => {
    if (!streaming || document.hidden || state === "ended") return;
    const now = Date.now();
    for (const region of allRegions()) {
      if (region.dataset.live !== "clock" || due.has(region.id)) continue;
      if (!fetchedAt.has(region.id)) fetchedAt.set(region.id, now);
      if (now - fetchedAt.get(region.id) >= everyMs(region)) due.set(region.id, now);
    }
    turn();
  }, 1_000);
  document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => event.persisted && connect());
}

