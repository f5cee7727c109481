// The decode engine hangs, and its page can be read all the same: a warning in words, and gone when it moves again. BINARY SHOTS

import { Browser, Kvgauge, assert, run } from "./browser.mjs";

await run(async (keep) => {
  const browser = await keep(Browser.start());
  const kvgauge = await keep(Kvgauge.demo("hung"));
  const page = await browser.open(kvgauge);
  const decode = browser.card("decode");
  const row = page.locator("#sources tbody tr", { has: page.locator("th", { hasText: /^decode$/ }) });

  await browser.until("a usage, and nothing else to say", () => {
    const card = document.querySelector('.card[data-role="decode"]');
    return card?.dataset.level === "ok" && card.querySelector(".part").hidden;
  });
  assert.match(await row.innerText(), /answers[^]*nothing is wrong/);

  await browser.until("it may hang", () => {
    const card = document.querySelector('.card[data-role="decode"]');
    return card.dataset.level === "warning" && /^decode's page unchanged for \d+ s while it has requests: it may hang\.$/.test(card.querySelector(".part").textContent);
  }, null, 150_000);
  // The usage alone looks harmless.
  const { sources, roles, warn } = await page.evaluate(() => window.kvgauge.moment());
  assert(roles.find(({ role }) => role === "decode").usage < warn);
  const { unchanged_ms, state } = sources.find(({ name }) => name === "decode");
  assert(unchanged_ms >= 35_000 && state === "up", `${unchanged_ms} ${state}`);
  assert.match(await decode.locator(".level").innerText(), /warning/);
  assert.match(await row.innerText(), /answers[^]*unchanged for \d+ s while it has requests: it may hang/);
  assert.match(await page.title(), /^▲ decode \d+ % · kvgauge$/);
  await browser.until("it is said aloud", () => /decode is warning, \d+ %: it may hang/.test(document.getElementById("say").textContent));
  await browser.glimpse("hung");

  await browser.until("it moves again", () => {
    const card = document.querySelector('.card[data-role="decode"]');
    return card.dataset.level === "ok" && card.querySelector(".part").hidden;
  }, null, 250_000);
  assert.match(await row.innerText(), /answers[^]*nothing is wrong/);
  browser.quiet();
});
