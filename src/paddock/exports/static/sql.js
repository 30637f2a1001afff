// SQL in an editor: its colours, and completion of an engine's tables and columns and of SQL's own words. Names are other
// people's text: they are shown as text, and quoted where they go into a query.
import { SQLDialect, syntaxTree } from "../vendor/codemirror.min.js";
import { columnsOf, foundAll, isFile, namesBelow, nearTables, needsNoSchema, sameName, searchTables } from "./engine-names.js";

const MOST_MENTIONS = 6;
const LONGEST_SHOWN = 200;

const NAME = String.raw`(?:"(?:[^"]|"")*"|[\p{L}_][\p{L}\p{N}_$]*)`;
const PATH = String.raw`${NAME}(?:\s*\.\s*${NAME})*`;
const WRITTEN = new RegExp(String.raw`(?:${NAME}\s*\.\s*)*(?:"[^"]*|[\p{L}_][\p{L}\p{N}_$]*)?$`, "u");
const NAMES = new RegExp(NAME, "gu");
const MENTION = new RegExp(String.raw`\b(?:from|join)\s+(${PATH}|'(?:[^']|'')*')(?:\s+(?:as\s+)?(${NAME}))?`, "giu");
const BEFORE_TABLE = /\b(?:from|join)\s+$/i;
const TYPED_ON = /^"?[\p{L}\p{N}_$]*$/u;
const FILE_WRITTEN = /\b(?:from|join)\s+'[^']*$/i;

// Words of SQL that are no name without quotes, in one engine or another. Longer lists have `id` and `name` as well.
const RESERVED = new Set(
  `all and any array as asc between both by case cast check collate column constraint create cross current_date current_time
  default desc describe distinct do else end except exists false fetch for foreign from full grant group having in initially
  inner insert intersect into is join lateral leading left like limit natural not null offset on only or order outer pivot
  primary qualify references returning right select show some summarize table then to trailing true union unique unpivot user
  using values when where window with`.split(/\s+/),
);

const FUNCTIONS = ["avg", "coalesce", "count", "lower", "max", "min", "round", "sum", "upper"];
const WORDS = [
  ...[...RESERVED].map((word) => ({ label: word.toUpperCase(), boost: -1 })),
  ...FUNCTIONS.map((name) => ({ label: name, detail: "function" })),
];

export const sql = SQLDialect.define({
  keywords: [...RESERVED, ..."ilike filter over partition preceding following unbounded nulls recursive tablesample".split(" ")].join(" "),
  types:
    "bigint binary blob boolean bytea char date decimal double float int integer interval json numeric real smallint text time " +
    "timestamp timestamptz tinyint uuid varchar",
  doubleDollarQuotedStrings: true,
});

// `chosen` tells which engine the form names now: its name, its type, the role, and where names without a schema are found.
export function completer(chosen) {
  return async (context) => {
    const engine = chosen();
    const file = context.matchBefore(FILE_WRITTEN);
    if (file) return engine.type === "duckdb" ? files(engine, context, file) : null;
    const inside = syntaxTree(context.state).resolveInner(context.pos, -1).name;
    if (inside === "String" || inside.endsWith("Comment")) return null;
    const written = context.matchBefore(WRITTEN);
    const wantsTable = BEFORE_TABLE.test(context.state.sliceDoc(Math.max(0, written.from - 200), written.from));
    if (!written.text && !context.explicit && !wantsTable) return null;
    return completions(engine, context, written, wantsTable);
  };
}

async function completions(engine, context, written, wantsTable) {
  const dot = written.text.search(/[^.\s]*$|"[^"]*$/u);
  const [path, word] = [namesOf(written.text.slice(0, dot)), written.text.slice(dot)];
  const isQuoted = word.startsWith('"');
  const words = path.length || isQuoted || wantsTable ? [] : WORDS;
  const names = engine.name ? await namesFor(engine, context, path, plain(word), wantsTable) : [];
  const closed = isQuoted && context.state.sliceDoc(context.pos, context.pos + 1) === '"';
  return {
    from: written.from + dot,
    to: closed ? context.pos + 1 : undefined,
    options: [...names.map((option) => (isQuoted ? inQuotes(option) : option)), ...words],
    validFor: !wantsTable || path.length || foundAll(engine, plain(word), names.length) ? TYPED_ON : undefined,
  };
}

async function namesFor(engine, context, path, word, wantsTable) {
  if (wantsTable) return path.length ? below(engine, path) : tables(engine, word);
  const mentions = mentionsIn(context.state.doc.toString());
  if (path.length) {
    const meant = mentions.filter((one) => sameName(one.alias ?? one.parts.at(-1), path.at(-1)));
    return meant.length ? columns(engine, meant) : below(engine, path);
  }
  const aliases = mentions.filter((one) => one.alias);
  return [...(await columns(engine, mentions)), ...aliases.map((one) => nameOption(engine, one.alias, one.parts.at(-1)))];
}

async function tables(engine, word) {
  const [near, found] = await Promise.all([nearTables(engine), searchTables(engine, word)]);
  return unique([...near, ...found].map((table) => tableOption(engine, table)));
}

function tableOption(engine, table) {
  if (isFile(engine, table)) return { label: shown(table.table), apply: literal(table.table), detail: "file" };
  const places = needsNoSchema(engine, table) ? [] : engine.type === "postgres" ? [table.schema] : [table.catalog, table.schema];
  const text = [...places, table.table].map((name) => quoted(engine, name)).join(".");
  return { label: shown(table.table), apply: text, detail: shown(places.join(".")) || "table" };
}

async function below(engine, path) {
  const names = await namesBelow(engine, path);
  return names.map((name) => nameOption(engine, name));
}

async function columns(engine, mentions) {
  const found = await Promise.all(mentions.map((one) => columnsOf(engine, one)));
  return unique(found.flat().map(({ name, native }) => ({ ...nameOption(engine, name, native), boost: 1 })));
}

function nameOption(engine, name, detail = "") {
  return { label: shown(name), apply: quoted(engine, name), detail: shown(detail) };
}

async function files(engine, context, written) {
  const found = (await nearTables(engine)).filter((table) => isFile(engine, table));
  const closed = context.state.sliceDoc(context.pos, context.pos + 1) === "'";
  const options = found.map(({ table }) => ({ label: shown(table), apply: literal(table).slice(1), detail: "file" }));
  return { from: written.from + written.text.indexOf("'") + 1, to: closed ? context.pos + 1 : undefined, options, validFor: /^[^']*$/ };
}

// The tables that the text names after FROM and JOIN, with what else they are called.
function mentionsIn(text) {
  const found = [...text.matchAll(MENTION)].slice(0, MOST_MENTIONS);
  return found.map(([, path, second]) => {
    const file = path.startsWith("'");
    const parts = file ? [path.slice(1, -1).replaceAll("''", "'")] : namesOf(path);
    const alias = second && !RESERVED.has(second.toLowerCase()) ? plain(second) : null;
    return { parts, alias, file };
  });
}

function namesOf(path) {
  return [...path.matchAll(NAMES)].map(([name]) => plain(name));
}

function plain(name) {
  return name.startsWith('"') ? name.slice(1).replace(/"$/, "").replaceAll('""', '"') : name;
}

function quoted(engine, name) {
  const simple = engine.type === "postgres" ? /^[a-z_][a-z0-9_]*$/ : /^[a-z_][a-z0-9_]*$/i;
  return simple.test(name) && !RESERVED.has(name.toLowerCase()) ? name : `"${name.replaceAll('"', '""')}"`;
}

// For a word that began with a quotation mark, which the list is to match as well.
function inQuotes(option) {
  return { ...option, label: `"${option.label}"`, apply: option.apply ?? option.label };
}

function literal(name) {
  return `'${name.replaceAll("'", "''")}'`;
}

// In a list a name stands in one line, and turns nothing around.
function shown(name) {
  return name.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "\ufffd").slice(0, LONGEST_SHOWN);
}

function unique(options) {
  return [...new Map(options.map((option) => [option.apply, option])).values()];
}
