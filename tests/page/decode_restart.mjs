// The decode server restarts: unknown in words and a gap, then it is back. BINARY SHOTS

import { Browser, Kvgauge, assert, run } from "./browser.mjs";

await run(async (keep) => {
  const browser = await keep(Browser.start());
  const kvgauge = await keep(Kvgauge.demo("decode-restart"));
  const page = await browser.open(kvgauge, "light");
  const decode = browser.card("decode");

  await browser.until("a usage that is known", () => /%/.test(document.querySelector('.card[data-role="decode"] .big')?.textContent));
  await browser.until("unknown", () => document.querySelector('.card[data-role="decode"]').dataset.level === "unknown", null, 150_000);
  assert.equal(await decode.locator(".big").innerText(), "unknown");
  await browser.until("the reason in words", () => /decode can't be reached/.test(document.querySelector('.card[data-role="decode"] .tokens').textContent));
  await browser.until("for how long", () => /^unknown for .*last known \d+\.\d %/.test(document.querySelector('.card[data-role="decode"] .since').textContent));
  assert.equal(await decode.locator(".bar").getAttribute("aria-label"), "usage is unknown");
  await browser.until("it is said aloud", () => /decode is unknown/.test(document.getElementById("say").textContent));
  assert.match(await page.title(), /^decode unknown · kvgauge$/);
  const row = page.locator("#sources tbody tr", { has: page.locator("th", { hasText: /^decode$/ }) });
  assert.match(await row.innerText(), /down/);
  // The other role goes on.
  assert.match(await browser.card("prefill").locator(".big").innerText(), /%/);
  await browser.glimpse("decode-restart-unknown");
  await browser.accessible();

  await browser.until("it is back", () => /%/.test(document.querySelector('.card[data-role="decode"] .big').textContent), null, 150_000);
  await browser.until("a few points after it", () => {
    const { lines } = window.kvgauge.drawn("usage decode");
    return lines.usage.slice(-3).every((value) => value !== null);
  });
  const { lines } = await page.evaluate(() => window.kvgauge.drawn("usage decode"));
  gap(lines.usage);
  for (const value of lines.usage) assert.notEqual(value, undefined, "uPlot joins over what is undefined");
  assert.match(await page.locator('figure[data-chart="usage decode"] .plot + .aloud').textContent(), /unknown from \d\d:\d\d:\d\d to \d\d:\d\d:\d\d: can't be reached/);
  assert.match(await page.locator("#marks").innerText(), /decode/);
  assert.match(await page.locator("#errors").innerText(), /decode/);
  await browser.shoot("decode-restart");
  browser.quiet();

  // The process keeps the gap as well.
  const late = await browser.open(kvgauge);
  await browser.until("the past", () => window.kvgauge?.charts().includes("usage decode"));
  gap((await late.evaluate(() => window.kvgauge.drawn("usage decode"))).lines.usage);
  assert.match(await late.locator("#marks").innerText(), /decode/);
  browser.quiet();
});

/** Known, then null at least twice, then known; and the null is never 0. */
function gap(values) {
  const text = values.map((value) => (value === null ? "-" : value > 0 ? "x" : "0")).join("");
  assert.match(text, /x-{2,}x|x-{2,}0*x/, text);
}
