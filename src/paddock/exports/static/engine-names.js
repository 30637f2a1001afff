// The tables and columns of an engine, for completion: from GET /api/engines/{engine}/browse (the schema cache, or the engine
// itself) and GET /api/schema/search, with this session's rights and the role of the form. Each answer is asked for once a page.
// Only what the level above has is asked for: half a word is no catalog. What cannot be had is left out: a completion that is
// missing is no error worth a word.
import { url } from "../page.js";

const LOCAL = new Set(["duckdb", "sqlite"]); // few places, each looked into; those of others are searched in the cache
const REMOTE = "remote"; // DuckDB's buckets: listing them costs, so that is left to who browses them
const MOST_PLACES = 12;
const MOST_NAMES = 2_000;
const SHORTEST_SEARCH = 2;
const MOST_FOUND = 200;

// Those that a query may name without more: of a local engine all, of another the tables of one schema.
export async function nearTables(engine) {
  const places = await placesOf(engine);
  const names = await Promise.all(places.map((place) => namesIn(engine, place)));
  return places.flatMap(([catalog, schema], n) => names[n].map((table) => ({ catalog, schema, table })));
}

export async function searchTables(engine, word) {
  if (LOCAL.has(engine.type) || word.length < SHORTEST_SEARCH) return [];
  const found = await ask("/api/schema/search", { q: word, engine: engine.name });
  return Array.isArray(found) ? found : [];
}

// Whether the names that were found for a word hold all that begin with it, whatever is typed on.
export function foundAll(engine, word, count) {
  return LOCAL.has(engine.type) || (word.length >= SHORTEST_SEARCH && count < MOST_FOUND);
}

// Below `hive` its schemas, below `hive.sales` or the `sales` of a near place its tables.
export async function namesBelow(engine, parts) {
  if (parts.length > 2) return [];
  const places = parts.length === 1 ? await placesOf(engine) : [];
  return namesIn(engine, places.find(([, name]) => sameName(name, parts[0])) ?? parts);
}

export async function columnsOf(engine, { parts, file }) {
  const place = parts.length === 3 ? await wholePlace(engine, parts) : await placeOf(engine, parts, file);
  const { columns } = place ? await browse(engine, place) : {};
  return columns ?? [];
}

// DuckDB shows the files of its folders as the tables of `local.files`.
export function isFile(engine, { catalog, schema }) {
  return engine.type === "duckdb" && catalog === "local" && schema === "files";
}

// Whether a query finds the tables of a schema without its name.
export function needsNoSchema(engine, { catalog, schema }) {
  if (engine.type === "postgres") return schema === "public";
  return LOCAL.has(engine.type) ? schema === "main" : engine.default === `${catalog}.${schema}`;
}

export function sameName(one, other) {
  return one.toLowerCase() === other.toLowerCase();
}

async function placesOf(engine) {
  if (engine.type === "trino") return engine.default.includes(".") ? [engine.default.split(".")] : [];
  const catalogs = (await namesIn(engine, [])).filter((name) => name !== REMOTE);
  if (!LOCAL.has(engine.type)) return catalogs.slice(0, 1).map((catalog) => [catalog, "public"]);
  const schemas = await Promise.all(catalogs.map((catalog) => namesIn(engine, [catalog])));
  return catalogs.flatMap((catalog, n) => schemas[n].map((schema) => [catalog, schema])).slice(0, MOST_PLACES);
}

async function placeOf(engine, parts, file) {
  const [table, schema] = parts.toReversed();
  const fits = (one) => sameName(one.table, table) && (!schema || sameName(one.schema, schema)) && isFile(engine, one) === file;
  return (await nearTables(engine)).find(fits) ?? (await searchTables(engine, table)).find(fits);
}

async function wholePlace(engine, [catalog, schema, table]) {
  const tables = await namesIn(engine, [catalog, schema]);
  return tables.includes(table) ? { catalog, schema, table } : null;
}

async function namesIn(engine, path) {
  if (path.length > 0 && !(await namesIn(engine, path.slice(0, -1))).includes(path.at(-1))) return [];
  const [catalog, schema] = path;
  const { names } = await browse(engine, { catalog, schema });
  return (names ?? []).slice(0, MOST_NAMES);
}

function browse(engine, { catalog, schema, table }) {
  return ask(`/api/engines/${encodeURIComponent(engine.name)}/browse`, { catalog, schema, table, role: engine.role });
}

const answers = new Map();

function ask(path, query) {
  const address = `${path}?${new URLSearchParams(Object.entries(query).filter(([, value]) => value))}`.replace(/\?$/, "");
  if (!answers.has(address)) answers.set(address, answerOf(address));
  return answers.get(address);
}

async function answerOf(address) {
  try {
    const response = await fetch(url(address), { headers: { accept: "application/json" } });
    if (response.ok) return (await response.json()).data;
  } catch {
    // Away for the moment: asked again at the next word.
  }
  answers.delete(address);
  return {};
}
