// What the page keeps of the past: gaps stay gaps, and a role without its model is still the same. No browser. BINARY SHOTS

import assert from "node:assert/strict";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

// Node takes a file as a module where a package.json says so.
const folder = mkdtempSync(join(tmpdir(), "kvgauge-web-"));
cpSync(fileURLToPath(new URL("../../src/admin/web", import.meta.url)), folder, { recursive: true });
writeFileSync(join(folder, "package.json"), '{"type":"module"}');
const { Series, spans } = await import(join(folder, "series.js"));
const { events } = await import(join(folder, "feed.js"));
const { allLegible, hotLevel, legible, level, mostUrgent, tokensInWords, usageInShort } = await import(join(folder, "words.js"));
rmSync(folder, { recursive: true });

const decode = (usage, model = "m") => ({ role: "decode", model, usage, unknown: usage === null ? "unreachable" : null });

// While a role is unknown, nobody names its model.
let series = new Series();
series.restore({
  step_s: 2, times: [10, 12, 14, 16], marks: [],
  roles: [
    { role: "decode", model: null, usage: [null, null, null, null], unknown: ["absent", null, null, "unreachable"] },
    { role: "decode", model: "m", usage: [null, 0.5, 0.6, null], unknown: [null, null, null, null] },
  ],
});
series.append({ roles: [decode(null, null)] }, 18);
series.append({ roles: [decode(0.4)] }, 20);
assert.deepEqual(series.times, [10, 12, 14, 16, 18, 20]);
assert.deepEqual(series.column("decode/usage"), [null, 0.5, 0.6, null, null, 0.4]);
assert.deepEqual(series.column("decode/unknown"), ["absent", null, null, "unreachable", "unreachable", null]);
assert.deepEqual(series.since("decode/usage", (v) => v !== null), { seconds: 0, atLeast: false });
// Within a step the newest counts.
series.append({ roles: [decode(0.41)] }, 21);
assert.deepEqual(series.column("decode/usage").at(-1), 0.41);

// A pause of the stream, and one between two processes, are gaps.
series.append({ roles: [decode(0.45)] }, 40);
series.restore({ step_s: 2, times: [50, 52], marks: [], roles: [{ role: "decode", model: "m", usage: [0.1, 0.2], unknown: [null, null] }] });
assert.deepEqual(series.times.slice(-6), [20, 22, 40, 42, 50, 52]);
assert.deepEqual(series.column("decode/usage").slice(-6), [0.41, null, 0.45, null, 0.1, 0.2]);

// A second model: what was is the first one's.
series.append({ roles: [decode(0.3), decode(0.1, "n")] }, 54);
assert.equal(series.keyOf(decode(0, "n")), "decode|n");
assert.deepEqual(series.column("decode|m/usage").slice(-3), [0.1, 0.2, 0.3]);
assert.deepEqual(series.column("decode|n/usage").slice(-3), [null, null, 0.1]);

// A clock that is set back, and an hour that is over.
series.append({ roles: [decode(0.2)] }, 5);
assert.equal(series.times.at(-1), 54);
for (let at = 56; at < 56 + 2 * 2000; at += 2) series.append({ roles: [decode(0.2)] }, at);
assert.equal(series.times.length, 1800);
for (const column of series.columns.values()) assert.equal(column.length, 1800);
assert(!series.columns.has("decode|n/usage"));

// However many come, there is a bound.
series = new Series();
for (let n = 0; n < 300; n += 1) series.append({ roles: Array.from({ length: 9 }, (_, i) => decode(0.5, `m${9 * n + i}`)) }, 2 * n);
assert(series.columns.size <= 400, String(series.columns.size));
for (let n = 0; n < 300; n += 1) series.mark(n, "x");
assert.equal(series.marks.length, 100);

// What rose: by the history, in which numbers are of single precision, however late a page is opened.
const late = (...preempted) => {
  const one = new Series();
  one.restore({ step_s: 2, times: preempted.map((_, i) => 2 * i), marks: [], roles: [{ role: "decode", model: "m", usage: preempted.map(() => 0.5), unknown: preempted.map(() => null), preempted }] });
  return one;
};
series = late(...new Array(20).fill(3), ...new Array(140).fill(9));
series.append({ roles: [{ ...decode(0.5), preempted: 12 }] }, 320);
assert.deepEqual(series.rise("decode/preempted", 300), { by: 9, seconds: 300 });
// Of less it says so, and of a single number nothing.
assert.deepEqual(late(null, 3, 3, 5).rise("decode/preempted", 300), { by: 2, seconds: 4 });
assert.equal(late(7).rise("decode/preempted", 300), null);
assert.equal(late(7, 2).rise("decode/preempted", 300), null);
series = late(123456790, 123456790);
series.append({ roles: [{ ...decode(0.5), preempted: 123456789 }] }, 4);
assert.equal(series.rise("decode/preempted", 300).by, 0);

// A level goes by the fullest of several pools.
const pools = (usage, max, more = {}) => ({ role: "decode", usage, max, pools: 4, ...more });
const levels = (role) => [level(role, 0.85, 0.95), hotLevel(role, 0.85, 0.95)];
assert.deepEqual(levels(pools(0.43, 0.976)), ["critical", "critical"]);
assert.deepEqual(levels(pools(0.43, 0.9, { missing: { count: 1, reason: "stale" } })), ["warning", "warning"]);
assert.deepEqual(levels(pools(0.43, 0.5, { missing: { count: 1, reason: "stale" } })), ["warning", null]);
assert.deepEqual(levels(pools(0.9, 0.99)), ["critical", "critical"]);
assert.deepEqual(levels(pools(0.96, 0.99)), ["critical", null]);
assert.deepEqual(levels(pools(0.43, 0.5)), ["ok", null]);
assert.deepEqual(levels(pools(0.43, 0.976, { pools: 1 })), ["ok", null]);
assert.deepEqual(levels(pools(null, 0.976)), ["unknown", null]);
const limits = { warn: 0.85, crit: 0.95 };
assert.equal(usageInShort(pools(0.43, 0.976), limits), "43 %, fullest pool 98 %");
assert.equal(usageInShort(pools(0.43, 0.5), limits), "43 %");
// Of many the urgent ones, in their order.
const many = [0.1, 0.9, 0.2, null, 0.99].map((usage, i) => ({ ...decode(usage), i }));
assert.deepEqual(mostUrgent({ ...limits, roles: many }, 3).map(({ i }) => i), [1, 3, 4]);
assert.deepEqual(mostUrgent({ ...limits, roles: many }, 9), many);
for (const tokens of [{}, { used: 1 }, { capacity: 2 }, { used: 1, capacity: 2 }]) assert(!tokensInWords(tokens).includes("–"));

// Runs of the same reason.
assert.deepEqual(spans([1, 2, 3, 4, 5], [null, "a", "a", "b", null]), [[2, 3, "a"], [4, 4, "b"]]);

// Texts from elsewhere show what is in them, and leave alone what stands beside them.
for (const text of ["", "rank 2", "Qwen/Qwen3-8B", "qwen\\u", "日本語 é", "น้ำ"]) assert.equal(legible(text), text);
assert.equal(legible("\u202e0\u0000\u009b\u200b\u00ad\u2029\u00a0\u3164"), "\\u{202e}0\\u{0}\\u{9b}\\u{200b}\\u{ad}\\u{2029}\\u{a0}\\u{3164}");
assert.equal(legible(`m${"\u0301".repeat(300)}n`), "m\u0301\u0301\u0301…n");
assert.equal(legible("מודל"), "\u2068מודל\u2069");
assert.deepEqual(
  allLegible({ a: [null, 0.5, "\u202e0"], b: { model: "\u200b", n: null, up: true } }),
  { a: [null, 0.5, "\\u{202e}0"], b: { model: "\\u{200b}", n: null, up: true } },
);

// An event stream in pieces, however it is cut.
const text = ": hello\r\n\r\nevent: moment\r\nid: 1\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\nevent: moment\ndata:2\n\ndata: other\n\n";
for (let cut = 1; cut < text.length; cut += 1) {
  const taken = [];
  const parse = events((name, data) => taken.push([name, data]));
  parse(text.slice(0, cut));
  parse(text.slice(cut));
  assert.deepEqual(taken, [["moment", '{"a":\n1}'], ["moment", "2"], ["message", "other"]], `cut at ${cut}`);
}
console.log("ok");
