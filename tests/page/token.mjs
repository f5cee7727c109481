// The operators' listener asks for a token: the page asks for it, and keeps it in its tab only. BINARY SHOTS

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Browser, Kvgauge, assert, run } from "./browser.mjs";

const TOKEN = "s3cret-operators";
const folder = mkdtempSync(join(tmpdir(), "kvgauge-token-"));
writeFileSync(join(folder, "token"), `${TOKEN}\n`);
writeFileSync(join(folder, "kvgauge.toml"), `admin.bearer_file = "${folder}/token"
upstream = "http://127.0.0.1:9"
[[source]]
name = "decode"
url = "http://127.0.0.1:9"
role = "decode"
`);

try {
  await run(async (keep) => {
    const browser = await keep(Browser.start());
    const kvgauge = await keep(Kvgauge.serve(join(folder, "kvgauge.toml")));
    const page = await browser.open(kvgauge);
    const form = page.locator("#token-form");
    await form.waitFor();
    assert(await page.locator("#state").isHidden());
    assert.equal(await page.evaluate(() => document.activeElement.id), "token");
    assert.equal(await page.locator("#token").getAttribute("type"), "password");
    await browser.accessible();
    await browser.glimpse("token");

    await page.keyboard.type("wrong");
    await page.keyboard.press("Enter");
    await page.getByText("That is not the token.").waitFor();

    await page.keyboard.type(TOKEN);
    await page.keyboard.press("Enter");
    await browser.until("the state", () => document.body.dataset.link === "live" && !document.getElementById("state").hidden);
    assert(await form.isHidden());
    // Nobody is there to be read, which is said and is no zero.
    await browser.until("why nothing is known", () => /decode can't be reached/.test(document.querySelector(".card").textContent));
    const kept = await page.evaluate(() => ({ session: Object.values(sessionStorage), local: localStorage.length, cookie: document.cookie, url: location.href }));
    assert(kept.session.includes(TOKEN));
    assert.deepEqual([kept.local, kept.cookie], [0, ""]);
    assert(browser.asked.every((url) => !url.includes(TOKEN)));
    await browser.accessible();

    await page.reload();
    await browser.until("the tab still has it", () => document.body.dataset.link === "live");
    await page.locator("#forget").click();
    await form.waitFor();
    assert.deepEqual(await page.evaluate(() => Object.values(sessionStorage)), []);
    browser.quiet([/401 \(Unauthorized\)/]);
  });
} finally {
  rmSync(folder, { recursive: true });
}
