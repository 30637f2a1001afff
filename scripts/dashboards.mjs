// Each file that is named is a dashboard as Grafana's schema has it: one line for each, and one for each thing that is wrong.
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import Ajv from "ajv";
import { createGenerator } from "ts-json-schema-generator";

const path = "node_modules/@grafana/schema/dist/types/raw/dashboard/x/types.gen.d.ts";
const schema = createGenerator({ path, type: "Dashboard", skipTypeCheck: true, additionalProperties: true }).createSchema(
  "Dashboard",
);
const fits = new Ajv({ strict: false, allErrors: true }).compile(schema);
let wrong = 0;
for (const file of process.argv.slice(2)) {
  const problems = fits(JSON.parse(readFileSync(file, "utf8"))) ? [] : fits.errors;
  wrong += problems.length;
  console.log(`${basename(file)}: ${problems.length === 0 ? "ok" : `${problems.length} problems`}`);
  for (const problem of problems) console.log(`  ${problem.instancePath} ${problem.message}`);
}
process.exit(wrong === 0 ? 0 : 1);
