// kvgauge itself is gone, and comes back at the same address. BINARY SHOTS

import { Browser, Kvgauge, assert, run } from "./browser.mjs";

await run(async (keep) => {
  const browser = await keep(Browser.start());
  const first = await keep(Kvgauge.demo("calm"));
  const page = await browser.open(first);
  await browser.until("a moment", () => document.body.dataset.link === "live" && window.kvgauge.points() > 2);
  assert(await page.locator("#lost").isHidden());
  const before = await page.evaluate(() => window.kvgauge.points());

  await first.end();
  await browser.until("the loss is said", () => /^kvgauge has not answered for \d+ s; what you see is old\./.test(document.getElementById("lost-text").textContent));
  assert(await page.locator("#lost").isVisible());
  assert.match(await page.title(), /^no answer · /);
  assert.equal(await page.locator("#say").textContent(), "kvgauge does not answer; what you see is old");
  await browser.glimpse("lost");

  const second = await keep(Kvgauge.demo("calm", first.admin));
  assert.equal(second.admin, first.admin);
  await browser.until("it is back by itself", () => document.body.dataset.link === "live");
  assert(await page.locator("#lost").isHidden());
  assert.equal(await page.locator("#say").textContent(), "kvgauge answers again");
  // What this page saw of the one before stays, and the pause is not joined.
  await browser.until("new points", (n) => window.kvgauge.points() > n + 2 && window.kvgauge.charts().includes("usage decode"), before);
  const { times, lines } = await page.evaluate(() => window.kvgauge.drawn("usage decode"));
  for (let i = 1; i < times.length; i += 1) {
    const pause = times[i] - times[i - 1];
    const joined = lines.usage[i] !== null && lines.usage[i - 1] !== null;
    assert(!(pause > 5 && joined), `${pause} s are joined: ${JSON.stringify(lines.usage)}`);
  }
  assert(lines.usage.includes(null), JSON.stringify(lines.usage));
  browser.quiet([/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/]);
});
