// From a moment to the page: cards and tables. All text goes in as text, whoever wrote it; what has not
// changed is left alone, so that a selection and a screen reader's place stay.

import {
  LEVELS, NOT_KNOWN, count, hotLevel, known, level, millis, mostUrgent, percent, poolName, queueName, rate, roleLevel, roundPercent, span,
  standingStill, stillInWords, time, tokensInWords, wholeLevel, why, whyPart,
} from "./words.js";

/** An element; `text` becomes its text, `class` its classes, the rest attributes. */
export function make(tag, { text, class: classes, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const set = (element, name, value) => {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
};

// === Cards ===

/** Beyond it, the tables tell more. */
const MOST_CARDS = 12;

export class Cards {
  #box;
  #note;
  #cards = new Map();
  #traffic = null;

  constructor(box, note) {
    this.#box = box;
    this.#note = note;
  }

  show(moment, series) {
    const roles = mostUrgent(moment, MOST_CARDS);
    const more = (moment.roles ?? []).length - roles.length + (moment.roles_left_out ?? 0);
    say(this.#note, more > 0 ? `${count(more)} more roles or models, no worse off, are not shown here; /kv has all.` : "");
    const keys = new Set(roles.map((role) => series.keyOf(role)));
    for (const [key, card] of this.#cards) {
      if (keys.has(key)) continue;
      card.element.remove();
      this.#cards.delete(key);
    }
    if (!this.#traffic) {
      this.#traffic = new TrafficCard();
      this.#box.append(this.#traffic.element);
    }
    roles.forEach((role, i) => {
      const key = series.keyOf(role);
      let card = this.#cards.get(key);
      if (!card) {
        card = new RoleCard(role);
        this.#cards.set(key, card);
      }
      if (this.#box.children[i] !== card.element) this.#box.insertBefore(card.element, this.#box.children[i]);
      card.show(role, moment, series);
    });
    this.#traffic.show(moment.traffic ?? {});
  }
}

let cards = 0;

class RoleCard {
  constructor(role) {
    const id = `card-${(cards += 1)}`;
    this.title = make("h3", { id });
    this.model = make("p", { class: "model" });
    this.sign = make("span", { "aria-hidden": "true" });
    this.word = make("span");
    this.big = make("p", { class: "big" });
    this.tokens = make("p", { class: "tokens" });
    this.bar = make("div", { class: "bar", role: "img" });
    this.fill = make("span", { class: "fill" });
    this.use = make("span", { class: "use" });
    this.warn = make("span", { class: "limit warn" });
    this.crit = make("span", { class: "limit crit" });
    this.bar.append(this.fill, this.use, this.warn, this.crit);
    this.since = make("p", { class: "since" });
    this.part = make("p", { class: "part" });
    this.facts = new Facts();
    this.element = make("article", { class: "card", "aria-labelledby": id, "data-role": role.role },
      make("header", {}, this.title, this.model, make("p", { class: "level" }, this.sign, this.word)),
      make("div", { class: "headline" }, this.big, this.tokens),
      this.bar, this.since, this.part, this.facts.element);
  }

  show(role, moment, series) {
    const { warn, crit, pools, headline } = moment;
    const key = series.keyOf(role);
    const now = roleLevel(role, moment);
    const hot = hotLevel(role, warn, crit);
    set(this.element, "data-level", now);
    // The number and its bar are of the whole, and coloured as such.
    set(this.element, "data-whole", hot ? wholeLevel(role, warn, crit) : now);
    set(this.element, "data-headline", String(headline === role.role));
    say(this.title, role.role);
    const model = series.modelOf(role) ?? "";
    say(this.model, model);
    set(this.model, "title", model);
    say(this.sign, LEVELS[now].sign);
    say(this.word, LEVELS[now].word);
    if (known(role.usage)) {
      say(this.big, percent(role.usage));
      say(this.tokens, tokensInWords(role));
      const fill = known(role.fill) ? `, fill ${roundPercent(role.fill)}` : "";
      set(this.bar, "aria-label", `usage ${roundPercent(role.usage)}${fill}; warning from ${roundPercent(warn)}, critical from ${roundPercent(crit)}`);
    } else {
      say(this.big, "unknown");
      say(this.tokens, why(role.unknown, role.role));
      set(this.bar, "aria-label", "usage is unknown");
    }
    // Through the object model, which a strict policy allows; a style attribute it does not.
    this.use.style.width = `${100 * Math.min(1, role.usage ?? 0)}%`;
    this.fill.style.width = `${100 * Math.min(1, known(role.usage) ? (role.fill ?? 0) : 0)}%`;
    this.warn.style.left = `${100 * warn}%`;
    this.crit.style.left = `${100 * crit}%`;
    const long = howLong(key, now, role, warn, crit, series);
    say(this.since, hot ? `as a whole ${long}` : long);
    const mine = (pools ?? []).filter((pool) => series.keyOf(pool) === key && known(pool.usage));
    const still = standingStill(role, moment).map((source) => `${stillInWords(source)}.`);
    const but = [...still, ...exceptions(role, key, mine, warn, crit, series)].join(" ");
    say(this.part, but);
    this.part.hidden = but === "";
    this.facts.show(factsOf(role, key, mine, hot, series));
  }
}

/** How long it has been so. */
function howLong(key, now, role, warn, crit, series) {
  const usage = `${key}/usage`;
  const lasting = (since) => {
    if (!since) return null;
    return `${since.atLeast ? "at least " : ""}${span(since.seconds)}`;
  };
  const above = (limit) => lasting(series.since(usage, (v) => known(v) && v >= limit));
  const age = known(role.age_ms) && role.age_ms > 3000 ? ` · read ${millis(role.age_ms)} ago` : "";
  if (now === "unknown") {
    const column = series.column(usage);
    let i = column.length - 1;
    while (i >= 0 && !known(column[i])) i -= 1;
    const last = i >= 0
      ? `last known ${percent(column[i])}, at ${time(1000 * series.times[i])}`
      : null;
    const long = lasting(series.since(`${key}/unknown`, (v) => v !== null));
    if (last === null) return series.times.length > 1 ? `not known once in the last ${span(series.times.at(-1) - series.times[0])}` : "not known yet";
    return `${long ? `unknown for ${long} · ` : ""}${last}`;
  }
  if (known(role.usage) && role.usage >= crit) {
    const [long, warned] = [above(crit), above(warn)];
    const more = warned && warned !== long ? ` · above ${roundPercent(warn)} for ${warned}` : "";
    return `above ${roundPercent(crit)} for ${long ?? span(0)}${more}${age}`;
  }
  if (known(role.usage) && role.usage >= warn) return `above ${roundPercent(warn)} for ${above(warn) ?? span(0)}${age}`;
  const long = lasting(series.since(usage, (v) => known(v) && v < warn));
  return `below ${roundPercent(warn)}${long ? ` for ${long}` : ""}${age}`;
}

/** One pool is the role itself; of several the fullest comes first. */
const fullestOf = (role, pools) => (role.pools > 1 ? pools[0] : undefined);

/** What the role as a whole does not show. */
function exceptions(role, key, pools, warn, crit, series) {
  const said = [];
  const hot = hotLevel(role, warn, crit);
  if (hot) {
    const fullest = fullestOf(role, pools);
    const name = fullest ? `${poolName(fullest)}, ` : "";
    const limit = hot === "critical" ? crit : warn;
    const since = series.since(`${key}/max`, (v) => known(v) && v >= limit);
    const long = since ? ` for ${since.atLeast ? "at least " : ""}${span(since.seconds)}` : "";
    said.push(`One pool is far fuller than the others: ${name}${percent(role.max)}, ${LEVELS[hot].word}: above ${roundPercent(limit)}${long}.`);
  }
  if (known(role.usage) && role.missing) {
    said.push(`Without ${count(role.missing.count)} of its parts (${whyPart(role.missing.reason)}): the values are of the rest.`);
  }
  return said;
}

function factsOf(role, key, pools, hot, series) {
  const fullest = fullestOf(role, pools);
  const facts = [
    ["fullest pool", percent(role.max), fullest ? poolName(fullest) : "", hot ?? false],
    ["fill with cache", percent(role.fill), ""],
    ["running", count(role.running), ""],
    ["queued", count(role.queued), "", role.queued > 0],
  ];
  // Some are always on their way from prefill to decode; who waits for room in a pool is another matter.
  for (const [queue, n] of Object.entries(role.queues ?? {})) facts.push([queueName(queue), count(n), "", queue === "prealloc" && n > 0]);
  if (known(role.preempted)) {
    const rise = series.rise(`${key}/preempted`, 300);
    const rose = rise !== null && rise.by > 0;
    facts.push(["preempted", count(role.preempted), rose ? `since its start; +${count(rise.by)} in ${span(rise.seconds)}` : "since its start", rose]);
  }
  if (known(role.host)) facts.push(["host memory", percent(role.host), ""]);
  if (known(role.hit_rate)) facts.push(["cache hits", percent(role.hit_rate), ""]);
  return facts;
}

/** Names with their values. */
class Facts {
  #rows = new Map();

  constructor() {
    this.element = make("dl", { class: "facts" });
  }

  show(facts) {
    const names = new Set(facts.map(([name]) => name));
    for (const [name, row] of this.#rows) {
      if (names.has(name)) continue;
      row.element.remove();
      this.#rows.delete(name);
    }
    for (const [name, value, more, notable = false] of facts) {
      let row = this.#rows.get(name);
      if (!row) {
        row = { value: make("b"), more: make("small") };
        row.element = make("div", {}, make("dt", { text: name }), make("dd", {}, row.value, row.more));
        this.#rows.set(name, row);
        this.element.append(row.element);
      }
      say(row.value, value === NOT_KNOWN ? "unknown" : value);
      say(row.more, more);
      row.element.classList.toggle("notable", Boolean(notable));
      row.element.classList.toggle("critical", notable === "critical");
      row.element.classList.toggle("none", value === NOT_KNOWN);
    }
  }
}

class TrafficCard {
  constructor() {
    const id = `card-${(cards += 1)}`;
    this.window = make("p", { class: "window" });
    this.big = make("p", { class: "big" });
    this.tokens = make("p", { class: "tokens" });
    this.facts = new Facts();
    this.times = new Sheet(make("table", { class: "quantiles" }, make("caption", { class: "aloud", text: "How long requests took" })), [
      { head: "", row: true }, { head: "p50", number: true }, { head: "p90", number: true }, { head: "p99", number: true },
    ]);
    this.element = make("article", { class: "card traffic", "aria-labelledby": id },
      make("header", {}, make("h3", { id, text: "traffic" }), this.window),
      make("div", { class: "headline" }, this.big, this.tokens),
      this.times.table, this.facts.element);
  }

  show(traffic) {
    say(this.window, known(traffic.window_s) ? `last ${span(traffic.window_s)}` : "");
    say(this.big, known(traffic.requests_per_s) ? `${rate(traffic.requests_per_s)} / s` : "unknown");
    say(this.tokens, known(traffic.requests_per_s) ? "requests that ended" : "not measured yet");
    const row = (name, q, nothing) => (known(q?.p50) || known(q?.p90) || known(q?.p99)
      ? [name, millis(q.p50), millis(q.p90), millis(q.p99)]
      : [name, { text: nothing, span: 3, class: "dim" }, null, null]);
    this.times.show([
      row("to the first token", traffic.ttft_ms, "no stream has ended"),
      row("per token after it", traffic.tpot_ms, "no stream that counts tokens"),
      row("whole request", traffic.duration_ms, "no request has ended"),
    ]);
    this.facts.show([
      ["in flight", count(traffic.in_flight), ""],
      ["failed / s", rate(traffic.failed_per_s), "", traffic.failed_per_s > 0],
      ["tokens in / s", rate(traffic.input_tokens_per_s), ""],
      ["tokens out / s", rate(traffic.output_tokens_per_s), ""],
    ]);
  }
}

// === Tables ===

/**
 * A table whose rows are renewed in place; an optional column without a value is hidden, and a name that has
 * no room is cut: its title has it. A cell is a text,
 * null where the one before it spans it, or `{ text, aloud, title, class, sign, time, share, span }`.
 */
export class Sheet {
  #body = make("tbody");
  #columns;
  #empty;

  constructor(table, columns, empty = "") {
    this.table = table;
    this.#columns = columns;
    this.#empty = empty;
    const head = make("tr");
    for (const column of columns) {
      head.append(column.head === "" ? make("td") : make("th", { text: column.head, scope: "col", class: classes(column) }));
    }
    table.append(make("thead", {}, head), this.#body);
  }

  show(rows) {
    const body = this.#body;
    if (rows.length === 0 && this.#empty) {
      if (!body.querySelector(".empty")) {
        body.replaceChildren(make("tr", {}, make("td", { class: "empty", colspan: String(this.#columns.length), text: this.#empty })));
      }
      return;
    }
    if (body.querySelector(".empty")) body.replaceChildren();
    while (body.rows.length > rows.length) body.deleteRow(-1);
    const hidden = this.#columns.map(({ optional }, j) => Boolean(optional) && rows.every((cells) => cells[j] === NOT_KNOWN));
    hidden.forEach((hide, j) => { this.table.tHead.rows[0].cells[j].hidden = hide; });
    rows.forEach((cells, i) => {
      const row = body.rows[i] ?? this.#newRow();
      cells.forEach((cell, j) => {
        row.cells[j].hidden = hidden[j] || cell === null;
        if (cell !== null) fillCell(row.cells[j], typeof cell === "object" ? cell : { text: cell }, this.#columns[j]);
      });
    });
  }

  #newRow() {
    const row = make("tr");
    // Its head, for where the rows are stacked on a phone.
    for (const column of this.#columns) row.append(column.row ? make("th", { scope: "row" }) : make("td", { "data-head": column.head }));
    this.#body.append(row);
    return row;
  }
}

const classes = (column, more = "") => [column.number && "number", column.extra && "extra", column.long && "long", column.name && "name", more].filter(Boolean).join(" ");

function fillCell(cell, { text, aloud = text === NOT_KNOWN ? "unknown" : undefined, title, class: more, sign, time: at, share, span: wide = 1 }, column) {
  if (cell.colSpan !== wide) cell.colSpan = wide;
  const wanted = classes(column, more);
  if (cell.className !== wanted) cell.className = wanted;
  const whole = title ?? (column.name && text !== NOT_KNOWN ? text : "");
  if (whole) set(cell, "title", whole);
  else cell.removeAttribute("title");
  if (share !== undefined) {
    let bar = cell.querySelector(".mini");
    if (!bar) {
      bar = make("span", { class: "mini", "aria-hidden": "true" }, make("span"));
      cell.replaceChildren(bar, make("span", { class: "said" }));
    }
    bar.firstChild.style.width = `${100 * Math.min(1, known(share) ? share : 0)}%`;
    say(cell.lastChild, text);
  } else if (sign) {
    if (!cell.querySelector(".sign")) cell.replaceChildren(make("span", { class: "sign", "aria-hidden": "true" }), " ", make("span", { class: "said" }));
    say(cell.firstChild, sign);
    say(cell.lastChild, text);
  } else if (at) {
    if (!cell.querySelector("time")) cell.replaceChildren(make("time"));
    set(cell.firstChild, "datetime", at);
    say(cell.firstChild, text);
  } else if (aloud) {
    // A dash is nothing to listen to.
    if (!cell.querySelector(".aloud")) cell.replaceChildren(make("span", { "aria-hidden": "true" }), make("span", { class: "aloud" }));
    say(cell.firstChild, text);
    say(cell.lastChild, aloud);
  } else if (cell.firstElementChild) {
    cell.textContent = text;
  } else {
    say(cell, text);
  }
}

const when = (at) => ({ text: time(at), time: new Date(at).toJSON() ?? "", title: String(at) });

export class Tables {
  constructor(find) {
    this.pools = new Sheet(find("pools"), [
      { head: "role", row: true }, { head: "pool", name: true }, { head: "source", name: true, extra: true }, { head: "usage" }, { head: "level" },
      { head: "used", number: true }, { head: "capacity", number: true }, { head: "model", name: true, extra: true, optional: true },
    ], "No pool has been read yet.");
    this.note = find("pools-note");
    this.sources = new Sheet(find("sources"), [
      { head: "source", name: true, row: true }, { head: "role" }, { head: "engine", name: true, extra: true }, { head: "state" }, { head: "last read", number: true },
      { head: "what is wrong, and what to do", long: true },
    ], "No source is set: kvgauge has nobody to ask.");
    this.errors = new Sheet(find("errors"), [{ head: "time" }, { head: "who", name: true, row: true }, { head: "what", long: true }], "Nothing has gone wrong.");
    this.marks = new Sheet(find("marks"), [{ head: "time" }, { head: "what", long: true }], "None in this hour.");
    this.requests = new Sheet(find("requests"), [
      { head: "time" }, { head: "request", name: true, row: true }, { head: "outcome" }, { head: "first token", number: true }, { head: "whole", number: true },
      { head: "tokens in → out", number: true }, { head: "KV start → end", number: true }, { head: "model", name: true, extra: true, optional: true }, { head: "id", name: true, extra: true },
    ], "No request has ended yet.");
  }

  show(moment, series) {
    const { warn, crit } = moment;
    this.pools.show((moment.pools ?? []).map((pool) => {
      const now = level(pool, warn, crit);
      return [
        pool.role ?? NOT_KNOWN,
        pool.pool ?? "the only one",
        pool.source ?? NOT_KNOWN,
        { text: known(pool.usage) ? percent(pool.usage) : "unknown", share: pool.usage ?? null, class: now },
        { text: LEVELS[now].word, sign: LEVELS[now].sign, class: `level-${now}` },
        count(pool.used),
        count(pool.capacity),
        pool.model ?? NOT_KNOWN,
      ];
    }));
    say(this.note, moment.pools_left_out > 0 ? `${count(moment.pools_left_out)} more, less full, are not shown here; /sources has all.` : "");
    this.sources.show((moment.sources ?? []).map((source) => sourceRow(source, moment)));
    this.errors.show((moment.errors ?? []).map((error) => [when(error.timestamp), error.who ?? NOT_KNOWN, errorInWords(error)]));
    this.marks.show([...series.marks].reverse().map((mark) => [when(1000 * mark.time), mark.text ?? ""]));
    this.requests.show((moment.requests ?? []).map(requestRow));
  }
}

/** `the router's answer, status 502 · 448 times` */
const errorInWords = ({ message, count: times }) => `${message ?? ""}${times > 1 ? ` · ${count(times)} times` : ""}`;

function sourceRow(source, moment) {
  const states = {
    up: { text: "answers", sign: LEVELS.ok.sign, class: "level-ok" },
    down: { text: "down", sign: LEVELS.critical.sign, class: "level-critical" },
    not_read: { text: "not read yet", sign: LEVELS.unknown.sign, class: "level-unknown" },
  };
  const still = source.stands_still ? source : null;
  const wrong = source.message ?? (still ? stillInWords(still) : source.unknown ? why(source.unknown, source.name) : null);
  return [
    { text: source.name ?? NOT_KNOWN, title: [source.name, source.url].filter(Boolean).join(" · ") },
    source.role ?? "router",
    source.engine ?? NOT_KNOWN,
    still ? { text: "answers", sign: LEVELS.warning.sign, class: "level-warning" } : states[source.state] ?? { text: String(source.state), sign: "?", class: "level-unknown" },
    known(source.age_ms) ? `${millis(source.age_ms)} ago` : "never",
    wrong === null ? { text: "nothing is wrong", class: "dim" } : wrong,
  ];
}

function requestRow(request) {
  const good = request.outcome === "complete" && !(request.status >= 400);
  const reported = (n) => (known(n) ? count(n) : "unknown");
  const share = (value) => (known(value) ? roundPercent(value) : "unknown");
  const status = known(request.status) ? String(request.status) : "no answer";
  return [
    when(request.timestamp),
    `${request.method ?? ""} ${request.path ?? ""}`.trim(),
    good ? { text: status, sign: LEVELS.ok.sign, class: "level-ok" } : { text: `${status} ${request.outcome ?? ""}`.trim(), sign: LEVELS.warning.sign, class: "level-warning" },
    // Where nothing is streamed the first token comes with all others.
    request.stream === false ? "" : millis(request.ttft_ms),
    millis(request.duration_ms),
    known(request.input_tokens) || known(request.output_tokens)
      ? `${reported(request.input_tokens)} → ${reported(request.output_tokens)}`
      : { text: NOT_KNOWN, aloud: "none reported" },
    `${share(request.kv_start_usage)} → ${share(request.kv_end_usage)}`,
    request.model ?? NOT_KNOWN,
    request.id ?? NOT_KNOWN,
  ];
}
