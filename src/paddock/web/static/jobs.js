// The list of jobs. Rows stay where they are: those on screen are fetched again when one of them changed, by their ids;
// what is new and matches is counted and waits behind a button. Further: selecting rows, saved views, menus.
import { announce } from "./announce.js";
import * as live from "./live.js";
import { on, store, url } from "./page.js";

const list = JSON.parse(document.getElementById("list").textContent);
const MOST_FRESH = 99;
const byId = (id) => document.getElementById(id);

// Live rows

let fresh = new Set();
const isBulkEnded = () => byId("bulk")?.querySelector("[data-ended]") !== null;
let bulkEnded = isBulkEnded();

const shownIds = () => [...document.querySelectorAll("#rows tr[data-job]")].map((row) => row.dataset.job);

// Which jobs the regions are fetched for; nothing: the newest.
function pin(ids) {
  const query = ids.length ? String(new URLSearchParams({ rows: ids.join(",") })) : "";
  for (const region of [byId("rows"), byId("fresh")]) if (region) region.dataset.liveQuery = query;
}

// As scanning.py looks; `list.filter` is the Filter as JSON, with the statuses a match can have.
const TESTS = {
  kind: (job, value) => job.kind === value,
  status: (job, value) => value.includes(job.status),
  owner: (job, value) => job.owner === value,
  group: (job, value) => job.group_id === value,
  worker: (job, value) => job.claimed_by === value,
  tag: (job, value) => job.tags.includes(value),
  error_code: (job, value) => job.error_code === value,
  schedule: (job, value) => job.schedule === value,
  retrying: (job) => job.attempt_count > 1,
  since: (job, value) => Date.parse(job.created_at) >= Date.parse(value),
  until: (job, value) => Date.parse(job.created_at) < Date.parse(value),
  ids: (job, value) => value.includes(job.id),
  id_prefix: (job, value) => job.id.replaceAll("-", "").startsWith(value.replaceAll("-", "")),
  q: (job, value) => [job.about, job.error_message, job.error_code].some((text) => text?.toLowerCase().includes(value.toLowerCase())),
};

function matches(job) {
  return Object.entries(list.filter).every(([name, value]) => value === null || !TESTS[name] || TESTS[name](job, value));
}

// Older than all that a full page shows is on another page.
function belongsHere(job, shown) {
  const full = document.querySelector("#after a[rel=next]");
  return list.first && matches(job) && !(full && shown.length && job.id < shown.at(-1));
}

function take(jobs) {
  const shown = shownIds();
  const visible = new Set(shown);
  const bulk = byId("bulk")?.querySelector("[data-job]")?.dataset.job;
  let changed = false;
  for (const job of jobs) {
    if (job.id === bulk) live.stir("bulk");
    if (visible.has(job.id)) changed = true;
    else if (belongsHere(job, shown)) fresh.add(job.id);
    else fresh.delete(job.id);
  }
  if (changed) live.stir("rows");
  if (!shown.length && fresh.size) showFresh();
  else drawFresh();
}

function drawFresh() {
  const button = byId("show-fresh");
  if (!button) return;
  const words = `${fresh.size > MOST_FRESH ? `${MOST_FRESH}+` : fresh.size} new`;
  const before = button.hidden ? "0 new" : button.textContent.trim();
  button.hidden = fresh.size === 0;
  button.setAttribute("aria-label", `${words}: show them`);
  if (button.textContent.trim() !== words) button.firstElementChild.textContent = words;
  if (fresh.size && words !== before) announce(`${words} in this list`);
}

function showFresh() {
  const focused = document.activeElement === byId("show-fresh");
  fresh = new Set();
  pin([]);
  live.refresh("rows", "fresh");
  drawFresh();
  if (focused) byId("rows").querySelector(".table")?.focus();
}

function redrawn(region) {
  if (region.id === "rows") {
    const shown = shownIds();
    pin(shown);
    for (const id of shown) fresh.delete(id);
    drawFresh();
    drawSelected();
  } else if (region.id === "bulk" && !bulkEnded && isBulkEnded()) {
    // What it changed may no longer match the filters: the rows are looked for again.
    bulkEnded = true;
    showFresh();
  } else if (region.id === "fresh") {
    const told = byId("show-fresh").dataset.fresh;
    // Live, the stream may know of one that came after the server looked.
    if (told || live.currentState() !== "live") fresh = new Set(told ? told.split(",") : []);
    drawFresh();
  }
}

// Searching further back

// So often a page with nothing on it goes on by itself; each looks at some ten thousand jobs.
const MOST_SEARCHES = 200;
const SEARCHES = "paddock-searches";

function searchOn() {
  const further = byId("continue");
  const begun = new URLSearchParams(location.search).has("cursor");
  const done = begun ? Number(sessionStorage.getItem(SEARCHES) ?? 0) : 0;
  if (!further || done >= MOST_SEARCHES || live.currentState() === "paused") return;
  sessionStorage.setItem(SEARCHES, String(done + 1));
  byId("searching").hidden = false;
  // Whoever goes back comes to where they searched from.
  location.replace(further.href);
}

// Selecting

let lastTicked = null;

const boxes = () => [...document.querySelectorAll("#rows input[name=id]")];
const ticked = () => boxes().filter((box) => box.checked);

function tick(event, box) {
  const all = boxes();
  const [from, to] = [all.indexOf(lastTicked), all.indexOf(box)];
  if (event.shiftKey && from >= 0) {
    for (const between of all.slice(Math.min(from, to), Math.max(from, to) + 1)) between.checked = box.checked;
  }
  lastTicked = box;
  drawSelected();
}

function drawSelected() {
  const form = byId("act");
  if (!form) return;
  const chosen = ticked();
  form.hidden = chosen.length === 0;
  form.parentElement.classList.toggle("selecting", chosen.length > 0);
  const all = byId("select-all");
  if (all) {
    all.checked = chosen.length > 0 && chosen.length === boxes().length;
    all.indeterminate = chosen.length > 0 && !all.checked;
    all.disabled = boxes().length === 0;
  }
  const count = `${chosen.length} selected`;
  if (byId("selected-count").textContent !== count) byId("selected-count").textContent = count;
  for (const button of form.querySelectorAll("button[name=do]")) offer(button, chosen);
}

// A button says how many of those selected it is for, and its question of which kinds they are.
function offer(button, chosen) {
  const meant = chosen.filter((box) => box.dataset.may.split(" ").includes(button.value));
  button.hidden = meant.length === 0;
  const fill = (words) => words.replace("#", meant.length);
  const jobs = (words) => fill(meant.length === 1 ? words.replace("jobs", "job") : words);
  button.querySelector("span").textContent = fill(button.dataset.word);
  const kinds = new Map();
  for (const box of meant) kinds.set(box.dataset.kind, (kinds.get(box.dataset.kind) ?? 0) + 1);
  const named = [...kinds].map(([kind, count]) => `${count} ${kind}`).join(", ");
  const rest = chosen.length - meant.length;
  button.dataset.confirm = jobs(button.dataset.many);
  button.dataset.label = fill(button.dataset.word);
  button.dataset.effect = `${named}. ${button.dataset.then}${rest ? ` The other ${rest} selected are left as they are.` : ""}`;
}

// Only those that the action is for are sent.
function sendMeant(event) {
  const action = event.submitter?.name === "do" ? event.submitter.value : null;
  for (const box of boxes()) box.disabled = action !== null && !box.dataset.may.split(" ").includes(action);
  setTimeout(() => boxes().forEach((box) => (box.disabled = false)));
}

// Saved views: a name and what stands behind the question mark.

const VIEWS = "paddock-job-views";

function savedViews() {
  try {
    const found = JSON.parse(store.get(VIEWS) ?? "[]");
    return found.filter((view) => typeof view?.name === "string" && typeof view?.query === "string" && view.query);
  } catch {
    return [];
  }
}

function drawViews() {
  const bar = byId("views").querySelector("ul");
  bar.querySelectorAll("[data-saved]").forEach((item) => item.remove());
  for (const { name, query } of savedViews()) {
    const item = document.createElement("li");
    item.dataset.saved = "";
    const link = document.createElement("a");
    link.href = url(`/jobs?${query}`);
    link.textContent = link.title = name;
    link.dir = "auto";
    if (query === list.query) link.setAttribute("aria-current", "page");
    item.append(link);
    bar.append(item);
  }
  const button = byId("keep-view");
  const isSaved = savedViews().some((view) => view.query === list.query);
  button.hidden = !isSaved && (list.query === "" || byId("views").querySelector("[aria-current]") !== null);
  button.textContent = isSaved ? "Delete view" : "Save view";
}

function keepView() {
  const saved = savedViews().filter((view) => view.query === list.query);
  if (saved.length) {
    store.set(VIEWS, JSON.stringify(savedViews().filter((view) => view.query !== list.query)));
    drawViews();
    announce(`${saved[0].name} is deleted.`, true);
    return;
  }
  const dialog = byId("name-view");
  const field = dialog.querySelector("input");
  field.value = [...document.querySelectorAll(".chip bdi")].map((value) => value.textContent).join(" ").slice(0, 60);
  dialog.returnValue = "";
  dialog.showModal();
  field.select();
}

function nameView() {
  const dialog = byId("name-view");
  const name = dialog.querySelector("input").value.trim();
  if (dialog.returnValue !== "yes" || !name) return;
  store.set(VIEWS, JSON.stringify([...savedViews().filter((view) => view.name !== name), { name, query: list.query }]));
  drawViews();
  announce(`${name} is saved.`, true);
}

// Menus: one is open at a time, and none once somebody looks elsewhere.

function closeMenus(except = null) {
  for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(except)) menu.open = false;
}

function start() {
  pin(shownIds());
  live.on("jobs", take);
  document.addEventListener("paddock:drawn", (event) => redrawn(event.detail));
  on("#show-fresh", "click", showFresh);
  on("#rows input[name=id]", "click", tick);
  on("#select-all", "click", (_, all) => (boxes().forEach((box) => (box.checked = all.checked)), drawSelected()));
  on("#select-none", "click", () => (boxes().forEach((box) => (box.checked = false)), drawSelected(), byId("select-all").focus()));
  on("#act", "submit", sendMeant);
  on("#keep-view", "click", keepView);
  byId("name-view").addEventListener("close", nameView);
  // Enter means save, and not the first button.
  on("#name-view input", "keydown", (event) => event.key === "Enter" && (event.preventDefault(), byId("name-view").close("yes")));
  on("form[method=get]", "formdata", (event) => {
    for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
  });
  document.addEventListener("click", (event) => closeMenus(event.target.closest("[download]") ? null : event.target));
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && document.querySelector(".menu[open]");
    if (menu) (menu.open = false), menu.querySelector("summary").focus();
  });
  addEventListener("pageshow", drawSelected);
  drawViews();
  drawSelected();
  searchOn();
}

start();
