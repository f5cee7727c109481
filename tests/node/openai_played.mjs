// The same as tests/py/openai_played.py, with the official client for Node: BASE_URL calls|embeddings|images

import assert from "node:assert/strict";
import { File } from "node:buffer";
import { createRequire } from "node:module";

// Node 18 has it, but not where the client looks.
globalThis.File ??= File;

// The packages stand where tests/run has put them.
const require = createRequire(`${process.env.KVGAUGE_NODE}/package.json`);
const OpenAI = require("openai").default;
const { toFile } = require("openai");

const [baseURL, what] = process.argv.slice(2);
let answers = 0;

const client = (more = {}) =>
  new OpenAI({ baseURL, apiKey: "secret-key", maxRetries: 0, timeout: 60_000, ...more });

const chat = (client, model, more = {}) =>
  client.chat.completions.create({ model, messages: [{ role: "user", content: "hello" }], ...more });

async function raises(kind, call) {
  let result;
  try {
    result = await call();
  } catch (error) {
    assert(error instanceof kind, `no ${kind.name} but ${error.stack}`);
    return error;
  }
  assert.fail(`no ${kind.name} but ${JSON.stringify(result)}`);
}

async function embeddings() {
  for (const more of [{}, { encoding_format: "float" }]) {
    const answer = await client().embeddings.create({ model: "m", input: ["hello"], ...more });
    answers += 1;
    assert.deepEqual(Array.from(answer.data[0].embedding), [0.25, -0.5]);
    assert.equal(answer.usage.prompt_tokens, 3);
  }
}

async function calls() {
  const kinds = [
    [400, OpenAI.BadRequestError],
    [401, OpenAI.AuthenticationError],
    [404, OpenAI.NotFoundError],
    [422, OpenAI.UnprocessableEntityError],
    [429, OpenAI.RateLimitError],
    [500, OpenAI.InternalServerError],
    [503, OpenAI.InternalServerError],
  ];
  for (const [status, kind] of kinds) {
    for (const stream of [false, true]) {
      const error = await raises(kind, () => chat(client(), `status-${status}`, { stream }));
      answers += 1;
      assert.equal(error.status, status);
      assert.equal(error.error.message, `${status} it is`);
      assert(error.headers.has("x-kv-usage"));
      assert(error.requestID);
    }
  }

  // It tries again by itself, each time as a request of its own.
  const answer = await chat(client({ maxRetries: 2 }), "busy-twice");
  answers += 3;
  assert.equal(answer.choices[0].message.content, "hi");

  // It gives up waiting.
  await raises(OpenAI.APIConnectionTimeoutError, () => chat(client({ timeout: 500 }), "silent"));

  // A stream that breaks off is an error, behind all that came of it.
  const seen = [];
  const stream = await chat(client(), "breaks-off", { stream: true });
  answers += 1;
  await raises(Error, async () => {
    for await (const chunk of stream) seen.push(chunk.choices[0].delta.content);
  });
  assert.deepEqual(seen, ["0 ", "1 ", "2 "]);

  await embeddings();

  const audio = Uint8Array.from({ length: 3_000_000 }, (_, n) => (n * 7) % 251);
  const file = await toFile(audio, "speech.wav");
  const heard = await client().audio.transcriptions.create({ model: "m", file });
  answers += 1;
  const length = Number.parseInt(heard.text, 10);
  assert(length > 3_000_000 && length < 3_002_000, heard.text);
}

// CRC-32 as zlib has it; Node 20 has none of its own everywhere.
function crc32(bytes) {
  const table = Uint32Array.from({ length: 256 }, (_, n) => {
    for (let k = 0; k < 8; k += 1) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
    return n;
  });
  let crc = 0xffffffff;
  for (const byte of bytes) crc = table[(crc ^ byte) & 255] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

async function images() {
  const image = Buffer.from(Uint8Array.from({ length: 3_000_000 }, (_, n) => n % 253)).toString("base64");
  assert.equal(image.length, 4_000_000);
  const images = Array.from({ length: 25 }, (_, n) => ({
    type: "image_url",
    image_url: { url: `data:image/png;base64,${String(n).padStart(3, "0")}${image}` },
  }));
  const summing = (url, init) => {
    const headers = new Headers(init.headers);
    headers.set("x-body-crc", String(crc32(Buffer.from(init.body))));
    return fetch(url, { ...init, headers });
  };
  const content = [{ type: "text", text: "What is this?" }, ...images];
  const answer = await client({ fetch: summing }).chat.completions.create({
    model: "m",
    messages: [{ role: "user", content }],
  });
  answers += 1;
  assert.equal(answer.choices[0].message.content, "hi");
}

await { calls, embeddings, images }[what]();
console.log(answers);
