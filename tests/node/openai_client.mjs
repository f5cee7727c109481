// The same as tests/py/openai_client.py, with the official client for Node: BASE_URL MODEL plain|pd

import assert from "node:assert/strict";
import { createRequire } from "node:module";

// The packages stand where tests/run has put them.
const require = createRequire(`${process.env.KVGAUGE_NODE}/package.json`);
const OpenAI = require("openai").default;

const [baseURL, model, mode] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "secret-key", maxRetries: 0, timeout: 30_000 });
let calls = 0;

function chat(content, more = {}) {
  calls += 1;
  const messages = [{ role: "user", content }];
  return client.chat.completions.create({ model, messages, max_tokens: 8, ...more });
}

// X-KV-Usage is there, once, and a decimal from 0 to 1.
function usage(headers) {
  const value = headers.get("x-kv-usage");
  assert.match(value, /^[01]\.\d{4}$/);
}

async function fails(kind, status, call) {
  try {
    await call();
  } catch (error) {
    assert(error instanceof kind, error.stack);
    assert.equal(error.status, status);
    usage(error.headers);
    return;
  }
  assert.fail(`${status} did not reach the client`);
}

async function all(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

// Whole answers.
let { data, response } = await chat("hello").withResponse();
usage(response.headers);
assert(data.choices[0].message.content);
assert.equal(data.usage.completion_tokens, 8);
data = await chat("hello", { user: "someone", temperature: 0.5, stop: ["x"] });
assert.equal(data.object, "chat.completion");

// Streams, without and with usage.
({ data, response } = await chat("hello", { stream: true }).withResponse());
usage(response.headers);
let chunks = await all(data);
assert(chunks.length > 2);
assert(chunks.every((chunk) => !chunk.usage));
assert(chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? "").join(""));
chunks = await all(await chat("hello", { stream: true, stream_options: { include_usage: true } }));
assert.deepEqual(chunks.at(-1).choices, []);
assert.equal(chunks.at(-1).usage.completion_tokens, 8);

// Completions and models.
calls += 1;
const completion = await client.completions.create({ model, prompt: "hello", max_tokens: 4 });
assert.equal(completion.usage.completion_tokens, 4);
calls += 1;
({ response } = await client.models.list().withResponse());
usage(response.headers);

// Errors, each as the exception that the client knows for it.
await fails(OpenAI.BadRequestError, 400, () => chat("hello", { max_completion_tokens: "many" }));
calls += 1;
await fails(OpenAI.NotFoundError, 404, () => client.get("/nope"));
for (const [status, kind] of [[429, OpenAI.RateLimitError], [503, OpenAI.InternalServerError]]) {
  // A disaggregated router makes a 500 of a worker's 429; a plain one passes it on.
  const made = mode === "pd" && status === 429;
  const [expected, as] = made ? [500, OpenAI.InternalServerError] : [status, kind];
  await fails(as, expected, () => chat(`sim:status=${status}`));
}

console.log(calls);
