// The pool fills: usage rises into the warning band, and the page says so in words. BINARY SHOTS

import { Browser, Kvgauge, assert, run } from "./browser.mjs";

await run(async (keep) => {
  const browser = await keep(Browser.start());
  const kvgauge = await keep(Kvgauge.demo("full"));
  const page = await browser.open(kvgauge);
  const decode = browser.card("decode");

  await browser.until("a usage below the warning", () => document.querySelector('.card[data-role="decode"]')?.dataset.level === "ok");
  assert.match(await decode.locator(".level").innerText(), /ok/);
  assert.match(await decode.locator(".big").innerText(), /^\d+\.\d %$/);
  assert.match(await decode.locator(".tokens").innerText(), /^[\d,]+ of [\d,]+ tokens$/);
  assert.match(await decode.locator(".since").innerText(), /^below 85 %/);
  const low = await page.evaluate(() => window.kvgauge.moment().roles.find((role) => role.role === "decode").usage);
  const calm = await page.title();

  await browser.until("the warning", () => ["warning", "critical"].includes(document.querySelector('.card[data-role="decode"]').dataset.level), null, 150_000);
  assert.match(await decode.locator(".level").innerText(), /warning|critical/);
  assert.match(await decode.locator(".since").innerText(), /^above \d\d %/);
  // Said once to who listens, when it has held.
  await browser.until("the level is said", () => /decode is (warning|critical), \d+ %/.test(document.getElementById("say").textContent));
  const loud = await page.title();
  assert.match(loud, /^(▲|◆) decode \d+ % · kvgauge$/);
  assert.notEqual(loud, calm);

  // What is drawn rises from where it was into the band, which begins at 85 %.
  const { lines } = await page.evaluate(() => window.kvgauge.drawn("usage decode"));
  const drawn = lines.usage.filter((value) => value !== null);
  assert(low < 0.85 && drawn[0] < 0.85, `${low} ${drawn[0]}`);
  assert(Math.max(...drawn) >= 0.85, String(Math.max(...drawn)));
  // The same for who does not see it.
  const figure = page.locator('figure[data-chart="usage decode"]');
  assert.match(await figure.locator(".plot + .aloud").textContent(), /usage: now \d+\.\d %, lowest \d+\.\d %, highest (8[5-9]|9\d|100)\.\d %/);

  // By keyboard alone: values of another time, and another range.
  await figure.locator(".plot").focus();
  await page.keyboard.press("Home");
  await browser.until("a value of the past is read out", () => /^\d\d:\d\d:\d\d: .*usage /.test(document.getElementById("readout").textContent));
  await page.keyboard.press("Escape");
  await page.locator('#ranges input[value="900"]').focus();
  await page.keyboard.press("ArrowLeft");
  assert.equal(await page.locator("#ranges input:checked").getAttribute("value"), "300");

  // The fullest pool comes first, and requests have ended.
  await browser.until("requests are shown", () => document.querySelectorAll("#requests tbody tr").length > 3);
  const usages = await page.locator("#pools tbody tr td:nth-child(4)").allInnerTexts();
  const numbers = usages.filter((text) => text !== "unknown").map(Number.parseFloat);
  assert.deepEqual(numbers, [...numbers].sort((a, b) => b - a));
  assert.match(await page.locator("#sources").innerText(), /decode[^]*answers/);

  await browser.accessible();
  await browser.shoot("full");
  browser.quiet();

  // Opened late, the page shows the past as well.
  const late = await browser.open(kvgauge);
  await browser.until("the past", () => window.kvgauge?.charts().includes("usage decode"));
  const past = await late.evaluate(() => window.kvgauge.drawn("usage decode").lines.usage.filter((value) => value !== null));
  assert(past.length >= 10 && Math.min(...past) < 0.85, `${past.length} points, lowest ${Math.min(...past)}`);
  browser.quiet();
});
