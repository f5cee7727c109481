// What an operator looks at: keeps the state, and puts feed, past and page together.

import { Charts } from "./charts.js";
import { Feed, token } from "./feed.js";
import { Series } from "./series.js";
import { Cards, Tables, say } from "./view.js";
import { LEVELS, count, known, roleLevel, span, standingStill, urgency, usageInShort } from "./words.js";

const RANGE = "kvgauge-range";
/** Milliseconds without a moment, which come each second, until what is seen is called old. */
const QUIET = 4000;
/** The same where the stream has ended. */
const ENDED = 1800;
/** A level that has held for so many moments is said aloud: one that swings at a limit is not. */
const HELD = 3;

const find = (id) => document.getElementById(id);

const series = new Series();
const cards = new Cards(find("cards"), find("roles-note"));
const tables = new Tables(find);
const charts = new Charts(find("charts"), find("hint"), find("readout"));

let moment = null;
/** Seconds since 1970 by kvgauge's clock, when the newest moment was made. */
let momentAt = 0;
let failure = null;
let seconds = 900;
let lostSaid = false;
/** By source: whether it was up. */
let ups = new Map();
/** By role: the level said last, and the one that is on its way. */
const levels = new Map();
/** The form is there; and the focus goes back from it when it has helped. */
let waitsForToken = false;
let askedForToken = false;

const feed = new Feed({
  history(history) {
    series.restore(history);
    draw();
  },
  moment(next) {
    const first = moment === null;
    const at = Date.parse(next.timestamp) / 1000;
    momentAt = known(at) ? at : Date.now() / 1000;
    moment = next;
    failure = null;
    watchSources(next.sources ?? []);
    series.append(next, momentAt);
    find("state").hidden = false;
    find("token-form").hidden = true;
    find("forget").hidden = token.get() === null;
    if (askedForToken) {
      askedForToken = false;
      find("main").focus();
    }
    show();
    tick();
    tellLevels(first);
  },
  lost(error) {
    failure = error;
    tick();
  },
  wantsToken(had) {
    waitsForToken = true;
    askedForToken = true;
    find("state").hidden = true;
    find("lost").hidden = true;
    find("forget").hidden = true;
    find("token-form").hidden = false;
    say(find("link-text"), "waits for a token");
    document.body.dataset.link = "closed";
    say(find("token-wrong"), had ? "That is not the token. Look into the file that admin.bearer_file names." : "");
    find("token").focus();
  },
});

// === Now ===

function show() {
  if (!moment || document.hidden) {
    title();
    return;
  }
  const { kvgauge = {} } = moment;
  const upstream = kvgauge.upstream ? ` → ${kvgauge.upstream}` : "";
  say(find("whence"), `${kvgauge.version ?? ""}${upstream} · up ${span(kvgauge.uptime_s)}${kvgauge.phase === "draining" ? " · draining, takes no new traffic" : ""}`);
  cards.show(moment, series);
  tables.show(moment, series);
  title();
  draw();
}

function draw() {
  if (!moment || document.hidden) return;
  const ahead = feed.heardAt === null ? 0 : (performance.now() - feed.heardAt) / 1000;
  charts.show(moment, series, momentAt + ahead, seconds);
}

/** Of several models of the headline role the one that is worst off, then the fullest. */
function headline() {
  const mine = (moment?.roles ?? []).filter((role) => role.role === moment.headline);
  return mine.sort((a, b) => urgency(b, moment) - urgency(a, moment) || (b.usage ?? -1) - (a.usage ?? -1))[0] ?? null;
}

function title() {
  const role = headline();
  let text = "kvgauge";
  let now = "unknown";
  if (role) {
    now = roleLevel(role, moment);
    const sign = now === "ok" || now === "unknown" ? "" : `${LEVELS[now].sign} `;
    text = `${sign}${role.role} ${usageInShort(role, moment)} · kvgauge`;
  }
  if (isOld()) {
    text = `no answer · ${text}`;
    now = "unknown";
  }
  if (document.title !== text) document.title = text;
  icon(now);
}

let iconLevel = "";
function icon(now) {
  if (iconLevel === now) return;
  iconLevel = now;
  const colour = { ok: "#2f9e6a", warning: "#e0a020", critical: "#dd4b42", unknown: "#8a94a0" }[now];
  const height = { ok: 5, warning: 10, critical: 13, unknown: 2 }[now];
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect x="1" y="1" width="14" height="14" rx="3" fill="#1b2430"/><rect x="4" y="${15 - height}" width="8" height="${height - 1}" rx="1" fill="${colour}"/></svg>`;
  find("icon").href = `data:image/svg+xml,${encodeURIComponent(svg)}`;
}

// === What changed ===

function watchSources(sources) {
  const now = new Map();
  for (const source of sources) {
    const up = source.state === "up";
    const before = ups.get(source.name);
    if (before === true && !up) series.mark(momentAt, `${source.name}: ${source.message ?? "does not answer"}`);
    if (before === false && up) series.mark(momentAt, `${source.name}: answers again`);
    if (source.state !== "not_read") now.set(source.name, up);
  }
  ups = now;
}

/** Says a level aloud when it has changed and held, and nothing else. */
function tellLevels(first) {
  const said = [];
  for (const role of moment.roles ?? []) {
    const now = roleLevel(role, moment);
    const key = series.keyOf(role);
    const told = levels.get(key);
    if (!told) {
      levels.set(key, { said: now, coming: now, held: 0 });
      if (!first) continue;
    } else {
      told.held = told.coming === now ? told.held + 1 : 1;
      told.coming = now;
      if (now === told.said || told.held < HELD) continue;
      told.said = now;
    }
    said.push(`${series.nameOf(role)} is ${LEVELS[now].word}${known(role.usage) ? `, ${usageInShort(role, moment)}` : ""}${standingStill(role, moment).length > 0 ? ": it may hang" : ""}`);
  }
  if (levels.size > 64) levels.clear();
  if (said.length > 0) say(find("say"), said.join("; "));
}

// === Whether kvgauge answers ===

const quietFor = () => (feed.heardAt === null ? null : performance.now() - feed.heardAt);

/** A stream that ends (a drain begins) and is there again at once is not worth a word. */
const isOld = () => {
  const quiet = quietFor();
  return quiet === null ? failure !== null : quiet > (failure === null ? QUIET : ENDED);
};

/** Each second, whether or not something came. */
function tick() {
  if (waitsForToken) return;
  const old = isOld();
  document.body.dataset.link = old ? "lost" : moment ? "live" : "connecting";
  find("lost").hidden = !old;
  if (!old) {
    say(find("link-text"), moment ? "live" : "connecting");
    if (lostSaid) say(find("say"), "kvgauge answers again");
    lostSaid = false;
    return;
  }
  const quiet = quietFor();
  const since = quiet === null ? "kvgauge does not answer." : `kvgauge has not answered for ${span(Math.max(1, quiet / 1000))}; what you see is old.`;
  const next = feed.nextTry === null ? "Trying now." : `Trying again in ${span((feed.nextTry - performance.now()) / 1000)}.`;
  say(find("lost-text"), [since, inWords(failure), next].filter(Boolean).join(" "));
  say(find("link-text"), "no answer");
  if (!lostSaid) say(find("say"), quiet === null ? since : "kvgauge does not answer; what you see is old");
  lostSaid = true;
  title();
}

function inWords(error) {
  switch (error?.status) {
    case undefined: return "";
    case 503: return "It says 503: too many look at it already, or its token's file can't be read.";
    case 404: return "It says 404: this kvgauge is older than this page. Load the page again.";
    default: return `It says ${count(error.status)}.`;
  }
}

// === The operator ===

function takeRange(value) {
  const wanted = document.querySelector(`#ranges input[value="${CSS.escape(value)}"]`);
  if (!wanted) return;
  wanted.checked = true;
  seconds = Number(value);
}

find("ranges").addEventListener("change", (event) => {
  sessionStorage.setItem(RANGE, event.target.value);
  takeRange(event.target.value);
  draw();
});

find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = find("token");
  const value = field.value.trim();
  // What else can't stand in a header field.
  if (!/^[\x21-\x7e]+$/.test(value)) {
    say(find("token-wrong"), "A token is visible ASCII without spaces.");
    return;
  }
  field.value = "";
  token.set(value);
  waitsForToken = false;
  find("token-form").hidden = true;
  say(find("link-text"), "connecting");
  feed.start();
});

find("forget").addEventListener("click", () => {
  token.forget();
  location.reload();
});

find("again").addEventListener("click", () => feed.start());
document.addEventListener("visibilitychange", show);

// What is drawn, to be looked at from the console and by tests; nothing can be changed by it.
Object.defineProperty(window, "kvgauge", {
  value: Object.freeze({
    charts: () => [...charts.ids],
    drawn: (id) => charts.drawn(id),
    moment: () => structuredClone(moment),
    points: () => series.times.length,
  }),
});

takeRange(sessionStorage.getItem(RANGE) ?? "900");
say(find("zone"), `Times are of ${Intl.DateTimeFormat().resolvedOptions().timeZone || "this browser's zone"}.`);
setInterval(() => {
  tick();
  // Time goes on where nothing comes, and what is missing shows.
  if ((quietFor() ?? 0) > 1500) draw();
}, 1000);
feed.start();
