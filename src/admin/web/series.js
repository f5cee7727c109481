// The past: one column a value, one number a step, bounded. Unknown is null, and so is a step of which
// nothing is known.

import { known, poolName } from "./words.js";

/** An hour in steps of two seconds. */
const MOST_POINTS = 1800;
/** Of roles, models and queues; a fleet beyond it is for a dashboard. */
const MOST_COLUMNS = 400;
const MOST_MARKS = 100;
const MOST_MODELS = 64;

const ROLE = ["usage", "max", "fill", "used", "capacity", "running", "queued", "preempted"];
const QUANTILES = ["p50", "p90", "p99"];
const RATES = ["requests_per_s", "failed_per_s", "input_tokens_per_s", "output_tokens_per_s"];

export class Series {
  constructor() {
    this.step = 2;
    this.times = [];
    this.columns = new Map();
    this.marks = [];
    /** By role: the models that it has been seen to serve. */
    this.models = new Map();
  }

  /**
   * Whose values these are. While nothing is known of a role its model is not known either; where it has
   * served one alone, that is still whose they are.
   */
  keyOf({ role, model }) {
    return this.#modelsOf(role).size > 1 ? `${role}|${model ?? ""}` : String(role);
  }

  /** `decode`, or `decode · model` where a role serves several. */
  nameOf({ role, model }) {
    return this.#modelsOf(role).size > 1 && model ? `${role} · ${model}` : String(role);
  }

  /** The model, or the only one that it can be. */
  modelOf({ role, model }) {
    const models = this.#modelsOf(role);
    return model ?? (models.size === 1 ? [...models][0] : null);
  }

  /** Takes the process's history; of what this page saw before it, what is older stays. */
  restore(history) {
    const times = Array.isArray(history.times) ? history.times.filter(known) : [];
    if (known(history.step_s) && history.step_s > 0) this.step = history.step_s;
    if (times.length === 0) return;
    this.#learn(history.roles ?? []);
    const older = this.#countBefore(times[0]);
    // A pause between the two must not be joined.
    const pause = older > 0 && times[0] - this.times[older - 1] > 2.5 * this.step;
    const kept = this.times.slice(0, older);
    const past = new Map([...this.columns].map(([key, column]) => [key, column.slice(0, older)]));
    if (pause) kept.push(kept[older - 1] + this.step);
    this.times = kept.concat(times);
    this.columns = new Map();
    const take = (key, column) => {
      if (!Array.isArray(column)) return;
      // A role without its model and with it are the same, one after the other.
      const taken = this.columns.get(key);
      if (!taken && this.columns.size >= MOST_COLUMNS) return;
      const before = past.get(key) ?? new Array(older).fill(null);
      if (pause && !taken) before.push(null);
      const now = times.map((_, i) => column[i] ?? taken?.[kept.length + i] ?? null);
      this.columns.set(key, (taken?.slice(0, kept.length) ?? before).concat(now));
      past.delete(key);
    };
    for (const role of history.roles ?? []) {
      const key = this.keyOf(role);
      for (const name of ROLE) take(`${key}/${name}`, role[name]);
      take(`${key}/unknown`, role.unknown);
      take(`${key}/fullest`, role.fullest);
      for (const [queue, column] of Object.entries(role.queues ?? {})) take(`${key}/queue:${queue}`, column);
    }
    for (const [name, column] of Object.entries(history.traffic ?? {})) take(`traffic/${name}`, column);
    for (const key of [...past.keys()]) take(key, []);
    for (const key of new Set((history.roles ?? []).map((role) => this.keyOf(role)))) {
      const [usage, unknown] = [this.columns.get(`${key}/usage`), this.columns.get(`${key}/unknown`)];
      unknown?.forEach((_, i) => { if (known(usage?.[i])) unknown[i] = null; });
    }
    const marks = Array.isArray(history.marks) ? history.marks : [];
    this.marks = this.marks.filter((mark) => mark.time < times[0]).concat(marks).slice(-MOST_MARKS);
    this.#trim();
  }

  /** Takes a moment of the stream: a new step, or the newest one again. */
  append(moment, at) {
    const last = this.times.at(-1);
    let step = Math.floor(at / this.step) * this.step;
    // A clock that was set back goes on from where it was.
    if (last !== undefined && step < last) step = last;
    if (last !== undefined && step - last > 2.5 * this.step) this.#push(last + this.step);
    if (last === undefined || step > last) this.#push(step);
    this.#learn(moment.roles ?? []);
    for (const role of moment.roles ?? []) {
      const key = this.keyOf(role);
      for (const name of ROLE) this.#set(`${key}/${name}`, role[name]);
      this.#set(`${key}/unknown`, known(role.usage) ? null : (role.unknown ?? "unknown"));
      const fullest = role.pools > 1 && (moment.pools ?? []).find((pool) => this.keyOf(pool) === key && known(pool.usage));
      this.#set(`${key}/fullest`, fullest ? poolName(fullest) : null);
      for (const [queue, n] of Object.entries(role.queues ?? {})) this.#set(`${key}/queue:${queue}`, n);
    }
    const traffic = moment.traffic ?? {};
    for (const name of RATES) this.#set(`traffic/${name}`, traffic[name]);
    for (const p of QUANTILES) {
      this.#set(`traffic/ttft_${p}_ms`, traffic.ttft_ms?.[p]);
      this.#set(`traffic/tpot_${p}_ms`, traffic.tpot_ms?.[p]);
    }
    this.#trim();
  }

  mark(time, text) {
    this.marks.push({ time, text });
    if (this.marks.length > MOST_MARKS) this.marks.shift();
  }

  column(key) {
    return this.columns.get(key) ?? new Array(this.times.length).fill(null);
  }

  /** The queues that this role has ever shown. */
  queues(key) {
    const head = `${key}/queue:`;
    return [...this.columns.keys()].filter((k) => k.startsWith(head)).map((k) => k.slice(head.length)).sort();
  }

  /**
   * For how long a column has fulfilled something without a break, up to its newest step: seconds, and
   * whether it may be longer (nothing older is known).
   */
  since(key, fulfils) {
    const column = this.column(key);
    let first = column.length;
    while (first > 0 && fulfils(column[first - 1])) first -= 1;
    if (first === column.length) return null;
    return { seconds: this.times.at(-1) - this.times[first], atLeast: first === 0 };
  }

  /**
   * How much a counter rose in the last so many seconds, or in those of them of which it is known; null
   * where that is none, or where it was set back.
   */
  rise(key, seconds) {
    const column = this.column(key);
    const from = this.times.at(-1) - seconds;
    let [first, last] = [null, null];
    for (let i = column.length - 1; i >= 0 && this.times[i] >= from; i -= 1) {
      if (!known(column[i])) continue;
      last ??= i;
      first = i;
    }
    if (first === null || first === last) return null;
    // The history is of single precision: two numbers are compared as it has them.
    const by = Math.fround(column[last]) - Math.fround(column[first]);
    if (by < 0) return null;
    const known_for = this.times.at(-1) - this.times[first];
    return { by, seconds: seconds - known_for <= this.step ? seconds : known_for };
  }

  #modelsOf(role) {
    return this.models.get(role) ?? new Set();
  }

  /** Which models there are; what was one's alone becomes that one's when a second comes. */
  #learn(roles) {
    for (const { role, model } of roles) {
      if (!model) continue;
      const models = this.#modelsOf(role);
      if (models.has(model) || models.size >= MOST_MODELS) continue;
      this.models.set(role, models.add(model));
      if (models.size !== 2) continue;
      const [first] = models;
      for (const [key, column] of [...this.columns]) {
        if (!key.startsWith(`${role}/`)) continue;
        this.columns.delete(key);
        this.columns.set(`${role}|${first}${key.slice(role.length)}`, column);
      }
    }
  }

  #countBefore(time) {
    let n = 0;
    while (n < this.times.length && this.times[n] < time) n += 1;
    return n;
  }

  #push(time) {
    this.times.push(time);
    for (const column of this.columns.values()) column.push(null);
  }

  #set(key, value) {
    let column = this.columns.get(key);
    if (!column) {
      if (this.columns.size >= MOST_COLUMNS) return;
      column = new Array(this.times.length).fill(null);
      this.columns.set(key, column);
    }
    column[column.length - 1] = typeof value === "string" || known(value) ? value : null;
  }

  #trim() {
    const extra = this.times.length - MOST_POINTS;
    if (extra <= 0) return;
    this.times.splice(0, extra);
    for (const [key, column] of this.columns) {
      column.splice(0, extra);
      // A role that has been gone for an hour.
      if (column.every((value) => value === null)) this.columns.delete(key);
    }
  }
}

/** From, to and reason of each run of steps with the same reason. */
export function spans(times, reasons) {
  const found = [];
  for (let i = 0; i < times.length; i += 1) {
    const reason = reasons[i] ?? null;
    if (reason === null) continue;
    const last = found.at(-1);
    if (last && last[2] === reason && reasons[i - 1] === reason) last[1] = times[i];
    else found.push([times[i], times[i], reason]);
  }
  return found;
}
