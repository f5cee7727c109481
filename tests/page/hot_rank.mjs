// One rank of four is full while the role as a whole looks harmless: the page names it. BINARY SHOTS

import { Browser, Kvgauge, assert, run } from "./browser.mjs";

await run(async (keep) => {
  const browser = await keep(Browser.start());
  const kvgauge = await keep(Kvgauge.demo("hot-rank"));
  const page = await browser.open(kvgauge, "light");
  const decode = browser.card("decode");

  await browser.until("the pool that is fuller is named", () => /One pool is far fuller than the others: .*2, \d\d\.\d %/.test(document.querySelector('.card[data-role="decode"] .part')?.textContent), null, 150_000);
  // By the role as a whole nothing would be wrong.
  assert.match(await decode.locator(".level").innerText(), /ok/);
  await browser.until("it is the first of the pools", () => /^decode\s.*2\s[^]*(warning|critical)/.test(document.querySelector("#pools tbody tr").innerText));
  assert.equal(await page.locator("#pools tbody tr", { hasText: "decode" }).count(), 4);
  const { lines } = await page.evaluate(() => window.kvgauge.drawn("usage decode"));
  assert(lines["fullest pool"].some((max, i) => max >= 0.85 && lines.usage[i] < 0.85), JSON.stringify(lines));
  await browser.shoot("hot-rank");
  browser.quiet();
});
