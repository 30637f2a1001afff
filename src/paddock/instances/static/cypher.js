// Cypher in an editor: its colours, and completion of the labels, edge types and properties of an instance.
import { StreamLanguage } from "../vendor/codemirror.min.js";

const KEYWORDS =
  "ALL AND ANY AS ASC BY CALL CASE CONTAINS DESC DISTINCT ELSE END ENDS EXISTS EXPLAIN IN IS LIMIT MATCH NONE NOT OPTIONAL OR ORDER PROFILE RETURN SHORTEST SINGLE SKIP STARTS THEN UNION UNWIND WHEN WHERE WITH XOR YIELD".split(" ");
const FUNCTIONS =
  "abs avg ceil coalesce collect count floor head id keys label labels last length lower max min nodes properties range reduce rels replace round size sqrt substring sum tail toInteger toString trim type upper".split(" ");
const CONSTANTS = new Set(["true", "false", "null"]);
const words = new Set(KEYWORDS);
const NAME = "(?:`[^`]*`|[\\p{L}_][\\p{L}\\p{N}_]*)";
const VARIABLE = new RegExp(`[([]\\s*(${NAME})\\s*:\\s*(${NAME})`, "gu");
const PROPERTY = new RegExp(`(${NAME})\\.(?:\`[^\`]*|[\\p{L}\\p{N}_]*)$`, "u");
const TYPED_ON = /^`?[\p{L}\p{N}_]*$/u;
const WRITTEN = /`[^`]*$|[\p{L}_][\p{L}\p{N}_]*$|$/u;

export const cypher = StreamLanguage.define({
  startState: () => ({ until: null, name: false }),
  token(stream, state) {
    if (state.until) return rest(stream, state);
    if (stream.eatSpace()) return null;
    const isName = state.name;
    state.name = false;
    if (stream.match("//")) return (stream.skipToEnd(), "comment");
    if (stream.match("/*")) return ((state.until = "*/"), rest(stream, state));
    if (stream.match(/^["']/)) return ((state.until = stream.current()), rest(stream, state));
    if (stream.match(/^`[^`]*`?/)) return isName ? "typeName" : null;
    if (stream.match(/^\d+(?:\.\d+)?(?:e[+-]?\d+)?/i)) return "number";
    if (stream.match(/^\$[\p{L}\p{N}_]+/u)) return "atom";
    if (stream.match(/^[\p{L}_][\p{L}\p{N}_]*/u)) return isName ? "typeName" : ofWord(stream);
    state.name = /[:|]/.test(stream.next());
    return null;
  },
  languageData: { commentTokens: { line: "//", block: { open: "/*", close: "*/" } } },
});

// A string or a comment, which may go on in the next line.
function rest(stream, state) {
  const kind = state.until === "*/" ? "comment" : "string";
  while (!stream.eol()) {
    if (stream.match(state.until)) return ((state.until = null), kind);
    if (stream.next() === "\\" && kind === "string") stream.next();
  }
  return kind;
}

function ofWord(stream) {
  const text = stream.current();
  if (words.has(text.toUpperCase())) return "keyword";
  if (CONSTANTS.has(text.toLowerCase())) return "atom";
  return stream.match(/^\s*\(/, false) ? "variableName.function" : null;
}

// `schema`: {nodes: [{label, properties}], edges: [{type, properties}]}, properties by their names.
export function completer(schema) {
  return (context) => {
    const before = context.state.sliceDoc(Math.max(0, context.pos - 2_000), context.pos);
    const quiet = before.replaceAll(/"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\/\/[^\n]*\n|\/\*.*?\*\//gs, (text) => " ".repeat(text.length));
    if (/["']|\/\/[^\n]*$|\/\*/.test(quiet)) return null;
    const written = context.matchBefore(WRITTEN);
    const options = optionsFor(schema, quiet, context.state.doc.toString());
    if (!options || (!written.text && !context.explicit && !/[:.|]$/.test(quiet))) return null;
    const closed = written.text.startsWith("`") && context.state.sliceDoc(context.pos, context.pos + 1) === "`";
    const named = written.text.startsWith("`") ? options.map((one) => ({ ...one, label: `\`${one.label}\`` })) : options;
    return { from: written.from, to: closed ? context.pos + 1 : undefined, options: named, validFor: TYPED_ON };
  };
}

function optionsFor(schema, before, text) {
  if (/\[[^\]]*[:|]\s*(?:`[^`]*|[\p{L}\p{N}_]*)$/u.test(before)) return schema.edges.map((edge) => option(edge.type, "edge type"));
  if (/\([^()]*:\s*(?:`[^`]*|[\p{L}\p{N}_]*)$/u.test(before) && !inMap(before)) return schema.nodes.map((node) => option(node.label, "label"));
  const [, variable] = before.match(PROPERTY) ?? [];
  if (variable) return propertiesOf(schema, variable, text);
  const written = KEYWORDS.map((word) => ({ label: word, apply: word, boost: -1 }));
  const functions = FUNCTIONS.map((name) => ({ label: name, apply: name, detail: "function", boost: -2 }));
  return [...variablesIn(text).keys()].map((name) => ({ label: name, apply: name, detail: "variable" })).concat(written, functions);
}

// (a {name: … is no label.
function inMap(before) {
  return before.lastIndexOf("{") > before.lastIndexOf("}") && before.lastIndexOf("{") > before.lastIndexOf("(");
}

// Of a variable with a known label its properties, of another all.
function propertiesOf(schema, variable, text) {
  const all = [...schema.nodes.map(({ label, properties }) => [label, properties]), ...schema.edges.map(({ type, properties }) => [type, properties])];
  const label = variablesIn(text).get(variable);
  const known = all.filter(([name]) => name === label);
  const found = (known.length ? known : all).flatMap(([name, properties]) => properties.map((property) => option(property, name)));
  return [...new Map(found.map((one) => [one.apply, one])).values()];
}

// Variables with the label that they are matched by.
function variablesIn(text) {
  return new Map([...text.matchAll(VARIABLE)].map(([, variable, label]) => [variable, label.replaceAll("`", "")]));
}

// Cypher has no way to write a backtick in a name.
function option(name, detail) {
  const simple = /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) && !words.has(name.toUpperCase());
  return { label: name, apply: simple ? name : `\`${name.replaceAll("`", "")}\``, detail };
}
