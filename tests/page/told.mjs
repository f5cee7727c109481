// What is said in words, of moments that are made up: a hot pool beside a missing engine, values that are not known, very many models. BINARY SHOTS

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Browser, DESKTOP, Kvgauge, PHONE, assert, run } from "./browser.mjs";

const folder = mkdtempSync(join(tmpdir(), "kvgauge-told-"));
writeFileSync(join(folder, "kvgauge.toml"), 'upstream = "http://127.0.0.1:9"\n');

const nothing = {
  model: null, usage: null, unknown: null, max: null, fill: null, used: null, capacity: null, pool: "full", running: null, queued: null,
  queues: {}, pending: null, hit_rate: null, preempted: null, host: null, age_ms: 100, pools: 0, missing: null,
};
const none = { p50: null, p90: null, p99: null };
const pool = (n, usage) => ({ role: "decode", model: "m", source: "decode", pool: `rank ${n}`, kind: "full", usage, unknown: null, used: null, capacity: 645376, fill: null, running: null, queued: null });
const request = {
  timestamp: "2026-11-30T23:58:00.000Z", id: "0193", method: "POST", path: "/v1/chat/completions", status: 200, outcome: "complete", model: "m",
  stream: true, ttft_ms: 444, tpot_ms: 18, duration_ms: 60_100, input_tokens: 12_034, output_tokens: 345, kv_start_usage: 0.5, kv_end_usage: null,
};
const hot = { ...nothing, role: "decode", model: "m", usage: 0.43, max: 0.976, pools: 3, missing: { count: 1, reason: "unreachable" } };
const moment = {
  kvgauge: { version: "0", uptime_s: 9, phase: "serving", upstream: "http://127.0.0.1:9" },
  warn: 0.85, crit: 0.95, headline: "decode", roles: [hot], roles_left_out: 0, pools: [pool(2, 0.976), pool(0, 0.2)], pools_left_out: 0, sources: [],
  traffic: { window_s: 60, in_flight: 0, requests_per_s: null, failed_per_s: null, input_tokens_per_s: null, output_tokens_per_s: null, ttft_ms: none, tpot_ms: none, duration_ms: none },
  requests: [
    { ...request, stream: false, ttft_ms: 60_100 },
    { ...request, path: "/v1/streamed" },
    { ...request, path: "/v1/models", stream: false, input_tokens: null, output_tokens: null },
  ],
  errors: [
    { timestamp: "2026-11-30T23:58:00.000Z", count: 448, who: "POST /v1", message: "the router's answer, status 502" },
    { timestamp: "2026-11-30T23:57:00.000Z", count: null, who: "decode", message: "decode timed out" },
  ],
};

try {
  await run(async (keep) => {
    const browser = await keep(Browser.start());
    const kvgauge = await keep(Kvgauge.serve(join(folder, "kvgauge.toml")));
    // What it says instead of its own; the stream ends after a moment, and is asked for again.
    let now = moment;
    const event = () => `event: moment\ndata: ${JSON.stringify({ ...now, timestamp: new Date().toJSON() })}\n\n`;
    await browser.context.route("**/kv/stream", (route) => route.fulfill({ contentType: "text/event-stream", body: event() }));
    const page = await browser.open(kvgauge);
    const decode = browser.card("decode");
    await decode.waitFor();

    // A hot pool and a missing engine: both are said, and the level is the worse.
    assert.match(await decode.locator(".level").innerText(), /critical/);
    assert.match(await decode.locator(".part").innerText(), /fuller than the others: rank 2, 97\.6 %, critical: above 95 % for .*\. Without 1 of its parts \(can't be reached\)/);
    assert.equal(await page.title(), "◆ decode 43 %, fullest pool 98 % · kvgauge");
    const icon = await page.locator("#icon").getAttribute("href");
    assert(decodeURIComponent(icon).includes("#dd4b42"), icon);

    // What is not known is a word, wherever one looks or listens.
    for (const card of await page.locator(".card").all()) {
      const text = await card.innerText();
      assert(!text.includes("–"), text);
    }
    assert.match(await decode.innerText(), /running\s+unknown/);
    assert.match(await browser.page.locator(".card.traffic").innerText(), /first token\s+no stream has ended/);
    assert.match(await page.locator('figure[data-chart="requests decode"]').innerText(), /running unknown/);
    for (const cell of await page.locator("td, th").all()) {
      const [text, seen] = await cell.evaluate((td) => [[...td.childNodes].filter((n) => n.ariaHidden !== "true").map((n) => n.textContent).join(""), td.textContent]);
      assert(!text.includes("–"), `${seen} is nothing to listen to`);
    }

    // An answer that is no stream has no first token of its own.
    const rows = page.locator("#requests tbody tr");
    const first = (n) => rows.nth(n).locator("td").nth(2).innerText();
    assert.deepEqual([await first(0), await first(1)], ["", "444 ms"]);
    assert.match(await page.locator("#errors").innerText(), /status 502 · 448 times/);
    assert(!/decode timed out ·/.test(await page.locator("#errors").innerText()));

    // On a phone nothing has to be pushed sideways, and numbers have their names.
    await page.setViewportSize(PHONE);
    await browser.settled();
    const wide = await page.locator(".sheet").evaluateAll((all) => all.map((one) => [one.firstElementChild.id, one.scrollWidth - one.clientWidth]));
    for (const [id, by] of wide) assert(by <= 0, `${id} is ${by} px wider than its box`);
    const names = (id) => page.locator(`#${id} tbody tr:nth-child(2) .number`).evaluateAll((all) => all.map((td) => getComputedStyle(td, "::before").content));
    assert.deepEqual(await names("requests"), ["first token", "whole", "tokens in → out", "KV start → end"].map((head) => `"${head} "`));
    assert.deepEqual(await names("pools"), ['"used "', '"capacity "']);
    await page.locator("#h-requests").scrollIntoViewIfNeeded();
    await browser.glimpse("told-phone");
    await page.setViewportSize(DESKTOP);
    await browser.accessible();

    // Metrics that are switched off: no usage, and nothing else.
    now = { ...moment, pools: [], roles: [{ ...nothing, role: "decode", unknown: "absent" }] };
    await browser.until("unknown", () => document.querySelector('.card[data-role="decode"]').dataset.level === "unknown");
    assert.match(await decode.innerText(), /fullest pool\s+unknown[^]*running\s+unknown/);
    await browser.until("the gap has words", () => /requests/.test(document.querySelector('figure[data-chart="requests decode"] h3').textContent)
      && /unknown from .*: no KV usage/.test(document.querySelector('figure[data-chart="requests decode"] .plot + .aloud').textContent));
    await browser.glimpse("told-unknown");
    // Where requests are known although the usage is not, there is no gap in theirs.
    now = { ...now, roles: [{ ...now.roles[0], running: 3, queued: 0 }] };
    await browser.until("requests are known", () => /running: now 3/.test(document.querySelector('figure[data-chart="requests decode"] .plot + .aloud').textContent));
    assert.match(await page.locator('figure[data-chart="usage decode"] .plot + .aloud').textContent(), /unknown from/);

    // Of a role that has never been known it is said once.
    now = { ...moment, pools: [], roles: [{ ...nothing, role: "prefill", unknown: "absent" }] };
    await browser.until("never known", () => /^not known once in the last \d+ s$/.test(document.querySelector('.card[data-role="prefill"] .since')?.textContent));

    // Names of others neither turn numbers round, nor widen a table, nor paint over the page.
    const evil = `\u202e0${"\u0301".repeat(300)}`;
    const long = `/v1/${"a".repeat(195)}`;
    now = {
      ...moment,
      roles: [{ ...hot, usage: 0.4, max: 0.97, model: evil, missing: null, preempted: 7 }],
      pools: [{ ...pool(0, 0.97), pool: evil, model: evil, source: long }, { ...pool(1, 0.1), model: evil, pool: "עברית" }],
      sources: [{ name: long, url: `http://${long}`, role: "decode", engine: evil, state: "down", age_ms: 1, unchanged_ms: null, stands_still: false, unknown: null, message: long }],
      requests: [{ ...request, path: long, model: long, id: long, status: null, outcome: "upstream_aborted" }],
      errors: [{ timestamp: request.timestamp, count: 3, who: `POST ${long}`, message: `${evil}${long}` }],
    };
    await browser.until("the evil names", () => document.querySelector('.card[data-role="decode"] .part')?.textContent.includes("202e"));
    assert.match(await decode.locator(".part").innerText(), /: \\u\{202e\}0\u0301{3}…, 97\.0 %, critical/);
    assert(!/[\u202a-\u202e\u2066\u2067]/.test(await page.innerText("body")));
    assert((await page.locator("#pools").innerText()).includes("\u2068עברית\u2069"));
    assert.match(await decode.innerText(), /preempted\s+7\s+since its start/);
    for (const width of [1440, 1024, PHONE.width]) {
      await page.setViewportSize({ width, height: 900 });
      await browser.settled();
      const boxes = await page.locator(".sheet").evaluateAll((all) => all.map((one) => [one.firstElementChild.id, one.scrollWidth - one.clientWidth]));
      for (const [id, by] of boxes) assert(by <= 0, `${id} is ${by} px wider than its box at ${width}`);
      assert(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), `the page at ${width}`);
      await page.locator("#h-pools").scrollIntoViewIfNeeded();
      await page.screenshot({ path: `${process.argv[3]}/told-evil-${width}.png`, fullPage: true });
    }
    await page.setViewportSize(DESKTOP);
    assert.equal(await page.locator("#requests tbody th").getAttribute("title"), `POST ${long}`);
    assert(await page.locator("#requests tbody td").nth(1).evaluate((td) => td.getBoundingClientRect().right < innerWidth), "the outcome is seen");
    const heights = await page.locator("#pools tbody tr").evaluateAll((all) => all.map((tr) => tr.getBoundingClientRect().height));
    assert(heights.every((height) => height < 48), String(heights));

    // A chosen moment says its time at the chart, and stays at it while time goes on; a tap's as well as a key's.
    const figure = page.locator('figure[data-chart^="requests decode"]');
    const at = () => figure.locator(".at").textContent();
    const passes = async () => {
      const points = await page.evaluate(() => window.kvgauge.points());
      await browser.until("three more steps", (before) => window.kvgauge.points() >= before + 3, points);
    };
    const stays = async (chosen) => {
      assert.match(chosen, /^at \d\d:\d\d:\d\d$/);
      await passes();
      assert.equal(await at(), chosen);
      assert.equal(await page.locator("#hint").textContent(), chosen);
    };
    await figure.locator(".plot").focus();
    await page.keyboard.press("ArrowLeft");
    const [ring, legend] = await figure.evaluate((one) => {
      const plot = one.querySelector(".plot");
      const style = getComputedStyle(plot);
      return [plot.getBoundingClientRect().top - Number.parseFloat(style.outlineOffset) - Number.parseFloat(style.outlineWidth), one.querySelector(".legend").getBoundingClientRect().bottom];
    });
    assert(ring >= legend, `the ring at ${ring} px goes through the legend, which ends at ${legend} px`);
    await stays(await at());
    await page.keyboard.press("Escape");
    assert.equal(await at(), "");
    await page.setViewportSize(PHONE);
    await browser.settled();
    const devtools = await browser.context.newCDPSession(page);
    await devtools.send("Emulation.setTouchEmulationEnabled", { enabled: true });
    // From one chart to another: the tap takes the focus along.
    await page.locator('figure[data-chart="tokens in"] .plot').focus();
    await figure.scrollIntoViewIfNeeded();
    const box = await figure.locator(".u-over").boundingBox();
    await devtools.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [{ x: Math.round(box.x + 0.9 * box.width), y: Math.round(box.y + box.height / 2) }] });
    await devtools.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
    await browser.until("the tapped moment", () => document.querySelector('figure[data-chart^="requests decode"] .at').textContent !== "");
    await browser.settled();
    await stays(await at());
    await browser.glimpse("told-chosen-phone");
    await devtools.send("Emulation.setTouchEmulationEnabled", { enabled: false });
    await page.setViewportSize(DESKTOP);

    // Tokens in and out are not of one size.
    const charts = await page.evaluate(() => window.kvgauge.charts());
    assert(charts.includes("tokens in") && charts.includes("tokens out"), String(charts));

    // Of very many models those that are the worst off, and how many more there are.
    const many = Array.from({ length: 64 }, (_, n) => ({ ...nothing, role: "decode", model: `m${n}`, usage: n === 50 ? 0.99 : 0.1, pools: 1 }));
    now = { ...moment, roles: many, roles_left_out: 936 };
    await browser.until("the cards", () => document.querySelectorAll(".card[data-role]").length === 12);
    assert.match(await page.locator("#roles-note").innerText(), /^988 more roles or models/);
    assert.match(await page.locator(".cards").innerText(), /m50[^]*critical/);
    assert.match(await page.title(), /^◆ decode 99 %/);
    assert((await page.evaluate(() => window.kvgauge.charts())).includes("usage decode|m50"));
    browser.quiet();
  });
} finally {
  rmSync(folder, { recursive: true });
}
