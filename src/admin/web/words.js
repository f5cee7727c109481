// Numbers, times and reasons in words. Pure: nothing here knows the page.

/** What stands where a value is not known. Never 0. */
export const NOT_KNOWN = "–";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minutes = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

/** What nobody sees, and what shows the rest in another order; of marks on a letter what is beyond three. */
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}/gu;
const STACKED = /(\p{M}{3})\p{M}+/gu;
/** Letters that are written from right to left turn round what stands beside them. */
const LEFTWARD = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** A text from elsewhere, so that it shows all that is in it and leaves alone what stands around it: as in a terminal, `\u{202e}`. */
export function legible(text) {
  if (/^[ -~]*$/.test(text)) return text;
  const seen = text.replace(STACKED, "$1…").replace(HIDDEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
  return LEFTWARD.test(seen) ? `\u2068${seen}\u2069` : seen;
}

/** The same of all texts of an answer, in place: what comes from it is fit for the page, wherever it goes. */
export function allLegible(value) {
  if (typeof value === "string") return legible(value);
  if (value === null || typeof value !== "object") return value;
  for (const [key, inner] of Object.entries(value)) {
    if (inner !== null && typeof inner !== "number") value[key] = allLegible(inner);
  }
  return value;
}

export const known = (value) => typeof value === "number" && Number.isFinite(value);

/** `12,034` */
export const count = (n) => (known(n) ? whole.format(n) : NOT_KNOWN);

/** `2.58 M`: for axes. */
export function short(n) {
  if (!known(n)) return NOT_KNOWN;
  const size = Math.abs(n);
  if (size >= 1e6) return `${trim(n / 1e6)} M`;
  if (size >= 1e3) return `${trim(n / 1e3)} k`;
  return trim(n);
}

const trim = (n) => String(Number(n.toPrecision(3)));

/** `87.3 %` */
export const percent = (share) => (known(share) ? `${tenth.format(share * 100)} %` : NOT_KNOWN);

/** `87 %` */
export const roundPercent = (share) => (known(share) ? `${Math.round(share * 100)} %` : NOT_KNOWN);

/** `3.2`, `1,200` */
export function rate(n) {
  if (!known(n)) return NOT_KNOWN;
  return Math.abs(n) >= 100 ? whole.format(n) : tenth.format(n);
}

/** Milliseconds: `80 ms`, `1.2 s`, `3 min 20 s` */
export function millis(ms) {
  if (!known(ms)) return NOT_KNOWN;
  if (ms < 10) return `${tenth.format(ms)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 100_000) return `${tenth.format(ms / 1000)} s`;
  return span(ms / 1000);
}

/** Seconds: `12 s`, `3 min 20 s`, `2 h 5 min` */
export function span(seconds) {
  if (!known(seconds)) return NOT_KNOWN;
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  const [h, m] = [Math.floor(s / 3600), Math.floor((s % 3600) / 60)];
  if (h >= 24) return `${Math.floor(h / 24)} d ${h % 24} h`;
  if (h > 0) return m > 0 ? `${h} h ${m} min` : `${h} h`;
  return s % 60 > 0 ? `${m} min ${s % 60} s` : `${m} min`;
}

/** `14:03:22`, of this browser's time zone. */
export function time(at) {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? NOT_KNOWN : clock.format(date);
}

/** `14:03` */
export const shortTime = (at) => minutes.format(new Date(at));

/** Why a role's usage is unknown. */
export function why(reason, who) {
  switch (reason) {
    case "unreachable": return `${who} can't be reached`;
    case "stale": return `the last reading of ${who} is too old to be believed`;
    case "absent": return `${who}'s page can be read, but has no KV usage: normal before the first requests; if it stays, Sources says why`;
    case "invalid": return `${who} shows a value that can't be one`;
    case "not_read": return `no good page of ${who} has been read since kvgauge started`;
    case "stalled": return "kvgauge has not renewed its values in time";
    default: return reason ? String(reason) : "no reason is given";
  }
}

/** Why a part of a role is missing, in few words. */
export function whyPart(reason) {
  switch (reason) {
    case "unreachable": return "can't be reached";
    case "stale": return "its last reading is too old";
    case "absent": return "no KV usage";
    case "invalid": return "a value that can't be one";
    case "not_read": return "no good page yet";
    case "stalled": return "kvgauge's values are too old";
    default: return String(reason ?? "no reason is given");
  }
}

/** What a level is called, and its sign: colour is never the only one. */
export const LEVELS = {
  ok: { word: "ok", sign: "●" },
  warning: { word: "warning", sign: "▲" },
  critical: { word: "critical", sign: "◆" },
  unknown: { word: "unknown", sign: "?" },
};

/** The sources of a role that can be read, have work and stand still. */
export function standingStill({ role, model }, { pools, sources }) {
  // Of a role with several models those that serve this one, as far as that is known.
  const others = (source) => {
    const served = (pools ?? []).filter((pool) => pool.source === source.name && pool.model).map((pool) => pool.model);
    return model && served.length > 0 && !served.includes(model);
  };
  return (sources ?? []).filter((source) => source.role === role && source.stands_still && !others(source));
}

/** `decode's page unchanged for 40 s while it has requests: it may hang` */
export const stillInWords = ({ name, unchanged_ms }) => `${name}'s page unchanged for ${span(unchanged_ms / 1000)} while it has requests: it may hang`;

const levelOf = (usage, warn, crit) => {
  if (usage >= crit) return "critical";
  return usage >= warn ? "warning" : "ok";
};

/** How full the fullest of several pools is; of one that is alone the role says it. */
const fullest = (role) => (role.pools > 1 && known(role.max) ? role.max : 0);

/** Of a pool, or of a role by the fullest of its pools: one that is full makes its requests wait, however empty the others are. */
export function level(role, warn, crit) {
  if (!known(role.usage)) return "unknown";
  const now = levelOf(Math.max(role.usage, fullest(role)), warn, crit);
  return now === "ok" && role.missing ? "warning" : now;
}

/** The level of the fullest pool, where the role as a whole is better off; else null. */
export function hotLevel(role, warn, crit) {
  if (!known(role.usage)) return null;
  const hot = levelOf(fullest(role), warn, crit);
  return fullest(role) > role.usage && hot !== levelOf(role.usage, warn, crit) ? hot : null;
}

/** The level of the role as a whole, whatever its fullest pool is. */
export const wholeLevel = (role, warn, crit) => (known(role.usage) ? levelOf(role.usage, warn, crit) : "unknown");

/** `43 %`, or `43 %, fullest pool 98 %` where that is what matters; "unknown". */
export function usageInShort(role, { warn, crit }) {
  if (!known(role.usage)) return "unknown";
  const hot = hotLevel(role, warn, crit) ? `, fullest pool ${roundPercent(role.max)}` : "";
  return `${roundPercent(role.usage)}${hot}`;
}

const URGENCY = { ok: 0, warning: 1, unknown: 2, critical: 3 };

/** How soon a role wants to be looked at: the larger, the sooner. */
export const urgency = (role, moment) => URGENCY[roleLevel(role, moment)];

/** At most so many of the roles, the most urgent ones, in their order. */
export function mostUrgent(moment, most) {
  const roles = moment.roles ?? [];
  const order = roles.map((role, i) => ({ role, i, urgent: urgency(role, moment) }));
  const kept = order.sort((a, b) => b.urgent - a.urgent || a.i - b.i).slice(0, most);
  return kept.sort((a, b) => a.i - b.i).map(({ role }) => role);
}

/** What a pool is called. */
export const poolName = (pool) => pool.pool || pool.source || "";

/** `12,034 of 2,581,504 tokens` */
export function tokensInWords({ used, capacity }) {
  if (known(used)) return known(capacity) ? `${count(used)} of ${count(capacity)} tokens` : `${count(used)} tokens, of how many is unknown`;
  return known(capacity) ? `of ${count(capacity)} tokens; how many are used is unknown` : "tokens are not known";
}

/** Of a role, and of whether what is read of it still moves. */
export function roleLevel(role, moment) {
  const now = level(role, moment.warn, moment.crit);
  return now === "ok" && standingStill(role, moment).length > 0 ? "warning" : now;
}

const QUEUES = {
  bootstrap: "bootstrap queue",
  inflight: "inflight queue",
  prealloc: "prealloc queue",
  transfer: "transfer queue",
};

/** A queue of prefill/decode disaggregation. */
export const queueName = (queue) => QUEUES[queue] ?? queue;
