// Shared by the scripts of this folder: a kvgauge, a Chromium, and what must hold of every page.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

// The packages stand where tests/run has put them.
const require = createRequire(`${process.env.KVGAUGE_NODE}/package.json`);
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const [binary, shots] = process.argv.slice(2);
mkdirSync(shots, { recursive: true });

export const DESKTOP = { width: 1440, height: 900 };
export const PHONE = { width: 390, height: 844 };
export const NARROW = { width: 360, height: 780 };

/** A running kvgauge, and the address of its operators' listener. */
export class Kvgauge {
  #child;

  /** `kvgauge demo`, whose text says where it listens; `admin` takes an address again. */
  static async demo(scenario, admin = "127.0.0.1:0") {
    const kvgauge = new Kvgauge(["demo", "--scenario", scenario, "--listen", "127.0.0.1:0", "--admin", admin]);
    kvgauge.admin = await kvgauge.#says(/curl http:\/\/(\S+)\/metrics/);
    return kvgauge;
  }

  /** `kvgauge serve` with this settings file; it says where it listens. */
  static async serve(file) {
    const kvgauge = new Kvgauge(["serve", "--config", file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    kvgauge.admin = await kvgauge.#says(/admin on (\S+)/);
    return kvgauge;
  }

  constructor(args) {
    this.output = "";
    this.#child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding("utf8");
      stream.on("data", (text) => {
        this.output = (this.output + text).slice(-65_536);
        this.#child.emit("said");
      });
    }
  }

  async #says(pattern) {
    const give_up = AbortSignal.timeout(30_000);
    for (;;) {
      const found = this.output.match(pattern);
      if (found) return found[1];
      assert.equal(this.#child.exitCode, null, `kvgauge ended:\n${this.output}`);
      await Promise.race([once(this.#child, "said", { signal: give_up }), once(this.#child, "exit", { signal: give_up })])
        .catch(() => assert.fail(`kvgauge has not said ${pattern}:\n${this.output}`));
    }
  }

  async end() {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await ended;
  }
}

/** A Chromium with a profile of its own. What it reports and where it asks is kept. */
export class Browser {
  static async start() {
    const self = new Browser();
    self.profile = mkdtempSync(join(tmpdir(), "kvgauge-chromium-"));
    self.context = await chromium.launchPersistentContext(self.profile, {
      executablePath: process.env.KVGAUGE_CHROMIUM ?? "/usr/bin/chromium",
      headless: true,
      viewport: DESKTOP,
      args: [
        "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync",
      ],
    });
    return self;
  }

  /** Opens the page of this kvgauge. */
  async open(kvgauge, colorScheme = "dark") {
    const page = this.context.pages()[0] ?? (await this.context.newPage());
    page.setDefaultTimeout(60_000);
    this.page = page;
    this.admin = kvgauge.admin;
    this.said = [];
    this.asked = [];
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) this.said.push(`${message.type()}: ${message.text()} (${message.location().url})`);
    });
    page.on("pageerror", (error) => this.said.push(`uncaught: ${error.stack}`));
    page.on("request", (request) => this.asked.push(request.url()));
    await page.emulateMedia({ colorScheme });
    const answer = await page.goto(`http://${kvgauge.admin}/`);
    assert.equal(answer.status(), 200);
    return page;
  }

  /** No error, no warning, and no request to anywhere else. `expected` are complaints that belong to the test. */
  quiet(expected = []) {
    const said = this.said.filter((line) => !expected.some((pattern) => pattern.test(line)));
    assert.deepEqual(said, []);
    const elsewhere = this.asked.filter((url) => !url.startsWith(`http://${this.admin}/`) && !url.startsWith("data:"));
    assert.deepEqual(elsewhere, []);
  }

  /** Nothing that axe calls worse than minor, in light and in dark, for desktop and for phone. */
  async accessible() {
    const { page } = this;
    const devtools = await this.context.newCDPSession(page);
    // The page's policy forbids a script of ours; the developer tools may.
    await devtools.send("Runtime.evaluate", { expression: AXE });
    for (const viewport of [DESKTOP, PHONE]) {
      await page.setViewportSize(viewport);
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme });
        const found = await page.evaluate(async () => {
          const { violations, passes } = await window.axe.run(document, { resultTypes: ["violations"] });
          return {
            passes: passes.length,
            grave: violations.filter(({ impact }) => impact !== "minor")
              .map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).join("; ")}`),
          };
        });
        assert.deepEqual(found.grave, [], `${colorScheme} at ${viewport.width}`);
        assert(found.passes > 10, "axe has looked at hardly anything");
      }
    }
    await devtools.detach();
    await page.setViewportSize(DESKTOP);
  }

  /** Pictures for desktop and phone, in light and dark; the phone's page is not wider than the phone. */
  async shoot(name) {
    const { page } = this;
    for (const [width, viewport] of Object.entries({ desktop: DESKTOP, phone: PHONE })) {
      for (const colorScheme of ["light", "dark"]) {
        await page.setViewportSize(viewport);
        await page.emulateMedia({ colorScheme });
        await this.settled();
        await page.screenshot({ path: join(shots, `${name}-${width}-${colorScheme}.png`) });
        if (colorScheme === "dark") await page.screenshot({ path: join(shots, `${name}-${width}-whole.png`), fullPage: true });
      }
    }
    for (const viewport of [NARROW, PHONE]) {
      await page.setViewportSize(viewport);
      await this.settled();
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert(wide <= 0, `the page is ${wide} px wider than a phone of ${viewport.width}`);
    }
    await page.setViewportSize(DESKTOP);
  }

  /** A picture of what is there now. */
  async glimpse(name) {
    await this.page.screenshot({ path: join(shots, `${name}.png`) });
  }

  /** Two frames later. */
  async settled() {
    await this.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  }

  /** Waits until something is so in the page. */
  async until(what, test, argument, timeout = 60_000) {
    await this.page.waitForFunction(test, argument, { timeout, polling: 200 })
      .catch(async (error) => {
        await this.glimpse("failed");
        const shown = await this.page.innerText("body");
        assert.fail(`not within ${timeout} ms: ${what}\n${error.message}\n${shown.slice(0, 3000)}`);
      });
  }

  card(role) {
    return this.page.locator(`.card[data-role="${role}"]`);
  }

  async end() {
    await this.context.close();
    rmSync(this.profile, { recursive: true, force: true });
  }
}

/** Runs a test to its end, and ends all that it has started. */
export async function run(test) {
  const started = [];
  const keep = async (promise) => {
    const one = await promise;
    started.push(one);
    return one;
  };
  try {
    await test(keep);
  } finally {
    for (const one of started.reverse()) await one.end();
  }
  console.log("ok");
}

export { assert };
