// Run transformers.js: `node transformers_js.mjs PACKAGE ROOT < jobs.json`. Jobs are a list of {folder, use, texts, dtype,
// grouped}. `use` is the name of a pipeline or an Auto class; `grouped` makes one example of all texts, of shape (1, n, length).
// The last line printed is a JSON list of results or errors.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [packageFolder, root] = process.argv.slice(2);
const js = await import(pathToFileURL(`${packageFolder}/node_modules/@huggingface/transformers/dist/transformers.node.mjs`));
js.env.allowRemoteModels = false;
js.env.localModelPath = root;

async function run({ folder, use, texts, dtype, grouped }) {
  const options = { dtype: dtype ?? "fp32" };
  if (!use.startsWith("Auto")) {
    const pipeline = await js.pipeline(use, folder, options);
    return await pipeline(...(use === "question-answering" ? texts : [texts]));
  }
  const tokenizer = await js.AutoTokenizer.from_pretrained(folder);
  const model = await js[use].from_pretrained(folder, options);
  const inputs = await tokenizer(texts, { padding: true });
  if (grouped) {
    for (const name in inputs) inputs[name] = inputs[name].unsqueeze(0);
  }
  const outputs = await model(inputs);
  return {
    ids: Array.from(inputs.input_ids.data, Number),
    outputs: Object.fromEntries(Object.entries(outputs).map(([name, tensor]) => [name, Array.from(tensor.data)])),
  };
}

const results = [];
for (const job of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    results.push(await run(job));
  } catch (error) {
    results.push({ error: error.message });
  }
}
console.log("\n" + JSON.stringify(results));
