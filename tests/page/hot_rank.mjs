// One rank of four is full while the role as a whole looks harmless: the page names it. BINARY SHOTS

import { Browser, Kvgauge, assert, run } from "./browser.mjs";

await run(async (keep) => {
  const browser = await keep(Browser.start());
  const kvgauge = await keep(Kvgauge.demo("hot-rank"));
  const page = await browser.open(kvgauge, "light");
  const decode = browser.card("decode");

  await browser.until("the pool that is fuller is named", () => /One pool is far fuller than the others: .*2, \d\d\.\d %, (warning|critical): above (85|95) % for /.test(document.querySelector('.card[data-role="decode"] .part')?.textContent), null, 150_000);
  // By the role as a whole nothing would be wrong; it goes by the fullest pool, as the terminal does.
  await browser.until("it is critical, whatever the whole is", () => {
    const card = document.querySelector('.card[data-role="decode"]');
    return card.dataset.level === "critical" && card.dataset.whole === "ok" && /critical/.test(card.querySelector(".part").textContent);
  }, null, 60_000);
  assert.match(await decode.locator(".level").innerText(), /critical/);
  assert.match(await decode.locator(".since").innerText(), /^as a whole below 85 %/);
  const { usage, warn } = await page.evaluate(() => ({ ...window.kvgauge.moment(), ...window.kvgauge.moment().roles.find(({ role }) => role === "decode") }));
  assert(usage < warn, String(usage));
  await browser.until("the tab says so", () => /^(▲|◆) decode \d+ %, fullest pool \d+ % · kvgauge$/.test(document.title));
  await browser.until("it is said aloud", () => /decode is (warning|critical), \d+ %, fullest pool \d+ %/.test(document.getElementById("say").textContent));
  await browser.until("it is the first of the pools", () => /^decode\s.*2\s[^]*(warning|critical)/.test(document.querySelector("#pools tbody tr").innerText));
  assert.equal(await page.locator("#pools tbody tr", { hasText: "decode" }).count(), 4);
  const { lines } = await page.evaluate(() => window.kvgauge.drawn("usage decode"));
  assert(lines["fullest pool"].some((max, i) => max >= 0.85 && lines.usage[i] < 0.85), JSON.stringify(lines));
  await browser.shoot("hot-rank");
  browser.quiet();
});
