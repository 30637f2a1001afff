// Ctrl-K: go to a job by its id, to whatever has a name, to a page; or do something. `?` shows the shortcuts, `g` and a letter go to
// a page, `/` goes to the first search field, `l` pauses live, `x` shows exact times.
//
// What can be done is what the page offers: each button of its heading is an action here too.
import * as live from "./live.js";
import { on, url } from "./page.js";
import { setTheme } from "./theme.js";
import { toggleExact, toggleZone } from "./times.js";

const ID_BEGINNING = /^0[0-9a-f-]{3,35}$/i;
const ID = /^[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;
const DUMP = /^export_\d{8}-\d{6}_[0-9a-z]{6}$/;
const MOST = 12;
const SEARCH_AFTER_MS = 150;
const AGAIN_AFTER_MS = 1_000;
const CHORD_MS = 1_200;

const dialog = () => document.getElementById("palette");
const field = () => dialog().querySelector("input");
const list = () => document.getElementById("palette-list");

let items = [];
let chosen = 0;
let kinds = null;
let searching = null;
let asking = false;

const go = (address) => () => (location.href = address);

function pages() {
  return [...document.querySelectorAll(".pages a")].map((link) => ({
    name: link.textContent.trim(),
    note: `g ${link.dataset.key}`,
    run: () => link.click(),
  }));
}

function actions() {
  const own = [...document.querySelectorAll(".heading form button, [data-palette-action]")].map((button) => ({
    name: button.dataset.paletteAction || button.textContent.trim(),
    note: "this page",
    run: () => button.click(),
  }));
  const settings = document.querySelector('.pages a[href$="/settings"]');
  return [
    ...own,
    { name: live.currentState() === "paused" ? "Resume live updates" : "Pause live updates", note: "l", run: live.togglePause },
    { name: "Times in local time or UTC", note: "switch", run: toggleZone },
    { name: "Exact times or “3 min ago”", note: "x", run: toggleExact },
    ...["light", "dark", "system"].map((name) => ({ name: `Theme: ${name}`, note: "switch", run: () => setTheme(name) })),
    ...(settings ? [{ name: "Drain mode on or off…", note: "Settings", run: go(settings.href) }] : []),
    { name: "Shortcuts", note: "?", run: showShortcuts },
    { name: "Sign out", note: "", run: () => document.querySelector('form[action$="/sign-out"]').requestSubmit() },
  ];
}

async function loadKinds() {
  if (kinds !== null) return;
  kinds = [];
  const answer = await fetch(url("/api/kinds"));
  if (!answer.ok) return;
  kinds = (await answer.json()).data.filter((kind) => !kind.housekeeping).map((kind) => kind.name);
  draw();
}

function kindItems() {
  return (kinds ?? []).map((name) => ({ name: `Jobs of ${name}`, note: "kind", run: go(url(`/jobs?${new URLSearchParams({ kind: name })}`)) }));
}

function found(query) {
  if (!query) return [...pages(), ...actions()];
  const words = query.toLowerCase().split(/\s+/);
  const matching = [...pages(), ...kindItems(), ...actions()].filter(({ name }) => words.every((word) => name.toLowerCase().includes(word)));
  // What is called just so stands first: "jobs of probe" is also in the jobs of cluster_probe.
  const phrase = words.join(" ");
  matching.sort((one, other) => (other.name.toLowerCase() === phrase) - (one.name.toLowerCase() === phrase));
  if (ID.test(query)) matching.unshift({ name: `Job ${query}`, note: "open", run: go(url(`/jobs/${query.toLowerCase()}`)) });
  if (DUMP.test(query)) matching.unshift({ name: `Dump ${query}`, note: "open", run: go(url(`/dumps/${query}`)) });
  matching.push({ name: `Find “${query}” in jobs`, note: "id or error", run: go(url(`/jobs?${new URLSearchParams({ q: query })}`)) });
  return matching.slice(0, MOST);
}

// null: too much is asked at once, as by many open pages.
async function ask(path, parameters) {
  const answer = await fetch(url(`${path}?${new URLSearchParams(parameters)}`));
  if (answer.status === 429) return null;
  return answer.ok ? (await answer.json()).data : [];
}

// What the server knows by this name or id: what is called just so stands first, the rest below what is here already.
function search(query, after = SEARCH_AFTER_MS) {
  clearTimeout(searching);
  if (query.length < 2) return;
  searching = setTimeout(() => void lookUp(query), after);
}

// One at a time: what is written meanwhile is looked up when that is answered, and whatever stood between is not.
async function lookUp(query) {
  if (asking) return;
  asking = true;
  let jobs = null;
  let things = null;
  try {
    [jobs, things] = await Promise.all([
      ID_BEGINNING.test(query) && !ID.test(query) ? ask("/api/jobs", { q: query, limit: 6 }) : [],
      ask("/api/search", { q: query, limit: 6 }),
    ]);
  } finally {
    asking = false;
  }
  if (!dialog().open) return;
  const written = field().value.trim();
  if (written !== query) return search(written);
  if (jobs === null || things === null) return search(query, AGAIN_AFTER_MS);
  const named = things.map((one) => ({
    name: `${one.what[0].toUpperCase()}${one.what.slice(1)} ${one.name || one.id}`,
    note: one.note || "open",
    exact: [one.name, one.id].some((text) => text.toLowerCase() === query.toLowerCase()),
    run: go(url(one.path)),
  }));
  const own = found(query);
  const last = own.pop();
  show(
    [
      ...jobs.map((job) => ({ name: `${job.kind} ${job.id}`, note: job.status, run: go(url(`/jobs/${job.id}`)) })),
      ...named.filter((one) => one.exact),
      ...own.slice(0, MOST - 1 - named.length),
      ...named.filter((one) => !one.exact),
      last,
    ].slice(0, MOST),
  );
}

function draw() {
  const query = field().value.trim();
  chosen = 0;
  show(found(query));
  search(query);
}

function show(next) {
  const before = items[chosen];
  const moved = chosen > 0;
  items = next;
  chosen = moved ? Math.max(0, next.findIndex(({ name, note }) => name === before?.name && note === before?.note)) : 0;
  list().replaceChildren(
    ...items.map(({ name, note }, place) => {
      const item = document.createElement("li");
      item.id = `palette-${place}`;
      item.setAttribute("role", "option");
      item.dataset.place = place;
      const words = document.createElement("span");
      words.textContent = name;
      const beside = document.createElement("span");
      beside.className = "quiet";
      beside.textContent = note;
      item.append(words, beside);
      return item;
    }),
  );
  mark();
}

function mark() {
  for (const item of list().children) item.setAttribute("aria-selected", String(Number(item.dataset.place) === chosen));
  const current = list().children[chosen];
  if (current) {
    field().setAttribute("aria-activedescendant", current.id);
    current.scrollIntoView({ block: "nearest" });
  } else {
    field().removeAttribute("aria-activedescendant");
  }
}

function run(place) {
  const item = items[place];
  if (!item) return;
  dialog().close();
  item.run();
}

export function openPalette() {
  field().value = "";
  draw();
  dialog().showModal();
  field().focus();
  void loadKinds();
}

function showShortcuts() {
  document.getElementById("shortcuts").showModal();
}

function choose(event) {
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  if (event.key in steps) {
    event.preventDefault();
    chosen = (chosen + steps[event.key] + items.length) % Math.max(1, items.length);
    mark();
  } else if (event.key === "Enter") {
    event.preventDefault();
    run(chosen);
  }
}

// One letter means something only where nobody is writing.
let chordAt = 0;

function shortcut(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    if (dialog().open) dialog().close();
    else if (!document.querySelector("dialog[open]")) openPalette();
    return;
  }
  const writing = event.target.closest?.("input, select, textarea, [contenteditable]");
  if (event.ctrlKey || event.metaKey || event.altKey || writing || document.querySelector("dialog[open]")) return;
  if (Date.now() - chordAt < CHORD_MS) {
    chordAt = 0;
    const link = document.querySelector(`.pages a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
    return;
  }
  const does = {
    g: () => (chordAt = Date.now()),
    "?": showShortcuts,
    l: live.togglePause,
    x: toggleExact,
    "/": () => document.querySelector("form[role=search] input:not([type=hidden])")?.focus(),
  }[event.key];
  if (!does) return;
  event.preventDefault();
  does();
}

export function start() {
  on("[data-palette]", "click", openPalette);
  on("#palette input", "input", draw);
  on("#palette input", "keydown", choose);
  on("#palette-list li", "click", (_, item) => run(Number(item.dataset.place)));
  // A click beside a dialog closes it.
  on("dialog", "click", (event, opened) => event.target === opened && opened.close(""));
  document.addEventListener("keydown", shortcut);
}
