// The history, drawn by uPlot. What is not known is a gap, hatched where a reason is known; it is never
// joined and never 0.

/* global uPlot */
import { count, known, millis, mostUrgent, percent, queueName, rate, roundPercent, short, shortTime, span, time, whyPart } from "./words.js";
import { spans } from "./series.js";
import { make, say } from "./view.js";

const SYNC = "kvgauge";
const TALL = 196;
const LOW = 138;
/** Seconds that are drawn at least. */
const SHORTEST = 60;
/** Roles that are drawn; the tables have all. */
const MOST_ROLES = 8;

/** Lines are told apart by their dashes as well as by their colours. */
const DASHES = { solid: [], dashed: [6, 4], dotted: [2, 3], mixed: [8, 3, 2, 3] };

const line = (key, label, colour, dash = "solid", more = {}) => ({ key, label, colour, dash, width: 1.6, ...more });

/** What is drawn, in order. */
function plan(drawn, series) {
  const charts = [];
  for (const role of drawn) {
    const [key, name] = [series.keyOf(role), series.nameOf(role)];
    charts.push({
      id: `usage ${key}`, title: `${name}: usage`, tall: true, share: true, unknown: `${key}/unknown`,
      format: percent, axis: roundPercent, nothing: "unknown",
      lines: [
        line(`${key}/fill`, "fill with cache", "fill", "dotted", { width: 1, area: true }),
        line(`${key}/max`, "fullest pool", "c2", "dashed", { width: 1.2, name: `${key}/fullest` }),
        line(`${key}/usage`, "usage", "c1", "solid", { width: 2.2 }),
      ],
    });
  }
  for (const role of drawn) {
    const [key, name] = [series.keyOf(role), series.nameOf(role)];
    charts.push({
      id: `requests ${key}`, title: `${name}: requests`, format: count, axis: short, whole: true, nothing: "unknown", unknown: `${key}/unknown`,
      lines: [
        line(`${key}/running`, "running", "c1"),
        line(`${key}/queued`, "queued", "c4", "dashed"),
        ...series.queues(key).map((queue, i) => line(`${key}/queue:${queue}`, queueName(queue), i % 2 ? "c3" : "c2", i % 2 ? "mixed" : "dotted")),
      ],
    });
  }
  const quantiles = (what) => [
    line(`traffic/${what}_p50_ms`, "p50", "c1"),
    line(`traffic/${what}_p90_ms`, "p90", "c2", "dashed"),
    line(`traffic/${what}_p99_ms`, "p99", "c4", "dotted"),
  ];
  charts.push(
    { id: "ttft", title: "Time to the first token", format: millis, axis: (ms) => (ms === 0 ? "0" : millis(ms)), nothing: "no request", lines: quantiles("ttft") },
    { id: "tpot", title: "Time per token after it", format: millis, axis: (ms) => (ms === 0 ? "0" : millis(ms)), nothing: "no request", lines: quantiles("tpot") },
    {
      id: "requests", title: "Requests a second", format: rate, axis: short, nothing: "unknown",
      lines: [line("traffic/requests_per_s", "ended", "c1"), line("traffic/failed_per_s", "failed", "c4", "dashed")],
    },
    // Prompts are often hundreds of times what is written: each has an axis of its own.
    { id: "tokens out", title: "Tokens out a second", format: rate, axis: short, nothing: "unknown", lines: [line("traffic/output_tokens_per_s", "out", "c1")] },
    { id: "tokens in", title: "Tokens in a second", format: rate, axis: short, nothing: "unknown", lines: [line("traffic/input_tokens_per_s", "in", "c2", "dashed")] },
  );
  return charts;
}

export class Charts {
  #box;
  #hint;
  #readout;
  #colours = {};
  #charts = [];
  #planned = "";
  #sizes;
  /** The chosen moment, unix seconds: it stays the same while time goes on. A mouse chooses a place, not a moment. */
  #held = null;

  constructor(box, hint, readout) {
    this.#box = box;
    this.#hint = hint;
    this.#readout = readout;
    this.#sizes = new ResizeObserver((entries) => {
      for (const { target } of entries) this.#charts.find((chart) => chart.box === target)?.fit();
    });
    const recolour = () => {
      this.#readColours();
      for (const chart of this.#charts) chart.plot.redraw();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    this.#readColours();
    this.#rest();
  }

  /** Draws `range` seconds up to `now`, or what there is of them. */
  show(moment, series, now, range) {
    const { warn, crit } = moment;
    // A young past fills the width, too.
    const past = series.times.length > 0 ? now - series.times[0] : 0;
    const seconds = Math.min(range, Math.max(SHORTEST, 1.04 * past));
    const charts = plan(mostUrgent(moment, MOST_ROLES), series);
    const planned = JSON.stringify(charts);
    if (planned !== this.#planned) this.#build(charts, planned);
    let first = 0;
    while (first < series.times.length && series.times[first] < now - seconds - series.step) first += 1;
    const times = series.times.slice(first);
    for (const chart of this.#charts) {
      const columns = chart.spec.lines.map(({ key }) => series.column(key).slice(first));
      chart.scene = {
        warn, crit, step: series.step, marks: series.marks,
        names: chart.spec.lines.map(({ name }) => (name ? series.column(name).slice(first) : [])),
        unknown: chart.spec.unknown ? gaps(series.column(chart.spec.unknown).slice(first), chart.spec.share ? [] : columns) : [],
      };
      chart.draw([times, ...columns], now - seconds, now);
    }
    if (this.#held === null) return;
    if (this.#held < now - seconds) this.#charts[0]?.leave();
    else this.#charts[0]?.choose(this.#held);
  }

  /** What a chart has drawn: times and a column a line, for whoever wants to check it. */
  drawn(id) {
    const chart = this.#charts.find((one) => one.spec.id === id);
    if (!chart) return null;
    const [times, ...columns] = chart.plot.data;
    return { times: [...times], lines: Object.fromEntries(chart.spec.lines.map(({ label }, i) => [label, [...columns[i]]])) };
  }

  get ids() {
    return this.#charts.map((chart) => chart.spec.id);
  }

  #build(specs, planned) {
    for (const chart of this.#charts) {
      this.#sizes.unobserve(chart.box);
      chart.plot.destroy();
    }
    this.#box.replaceChildren();
    this.#charts = specs.map((spec) => new Chart(spec, this.#colours, this.#box, {
      pointed: (at, text) => this.#pointed(at, text),
      held: (at) => { this.#held = at; },
    }));
    for (const chart of this.#charts) this.#sizes.observe(chart.box);
    this.#planned = planned;
  }

  #pointed(at, text) {
    if (at === null) this.#rest();
    else say(this.#hint, `at ${time(1000 * at)}`);
    if (text) say(this.#readout, text);
  }

  #rest() {
    say(this.#hint, matchMedia("(hover: hover)").matches ? "Point at a chart, or use its arrow keys, to read values." : "Touch a chart to read values.");
  }

  #readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["c1", "c2", "c3", "c4", "fill", "fill-area", "grid", "dim", "text", "warn-band", "crit-band", "warn", "crit", "unknown-hatch", "mark"]) {
      this.#colours[name] = style.getPropertyValue(`--${name}`).trim();
    }
  }
}

let charts = 0;

class Chart {
  /** `told` hears which moment is pointed at, with words where it is to be said, and which is held. */
  constructor(spec, colours, parent, told) {
    this.spec = spec;
    this.colours = colours;
    this.told = told;
    this.scene = { unknown: [], marks: [], names: [], step: 2, warn: 1, crit: 1 };
    const id = `chart-${(charts += 1)}`;
    this.values = spec.lines.map(() => make("b"));
    const items = spec.lines.map(({ label, colour, dash }, i) =>
      make("li", {}, make("span", { class: `swatch ${colour} ${dash}`, "aria-hidden": "true" }), `${label} `, this.values[i]));
    // The usage is drawn last, above the others, and named first.
    const legend = make("ul", { class: "legend" }, ...(spec.share ? items.reverse() : items));
    this.box = make("div", { class: "plot", tabindex: "0", role: "group", "aria-labelledby": id, "aria-describedby": `${id}-said`, "aria-roledescription": "chart" });
    this.at = make("span", { class: "at" });
    this.said = make("p", { class: "aloud", id: `${id}-said` });
    this.element = make("figure", { class: spec.tall ? "chart tall" : "chart", "data-chart": spec.id },
      make("figcaption", {}, make("div", { class: "named" }, make("h3", { id, text: spec.title, title: spec.title }), this.at), legend), this.box, this.said);
    parent.append(this.element);
    this.plot = this.#plot();
    this.box.addEventListener("keydown", (event) => this.#key(event));
    this.box.addEventListener("blur", () => this.leave());
    this.box.addEventListener("pointermove", ({ pointerType }) => { if (pointerType === "mouse") told.held(null); });
    let pointer = "mouse";
    this.box.addEventListener("pointerdown", ({ pointerType }) => { pointer = pointerType; });
    // Of a tap the last event, behind the focus that it moves.
    this.box.addEventListener("click", ({ clientX }) => {
      const { plot } = this;
      if (pointer === "mouse" || plot.data[0].length === 0) return;
      this.#hold(plot.data[0][plot.posToIdx(clientX - plot.over.getBoundingClientRect().left)]);
    });
  }

  /** Points at this moment, in all charts. */
  choose(at) {
    this.plot.setCursor({ left: this.plot.valToPos(at, "x"), top: 10 }, true, true);
  }

  /** Of all charts, as all go along. */
  leave() {
    this.told.held(null);
    this.plot.setCursor({ left: -10, top: -10 }, true, true);
  }

  #hold(at) {
    this.choose(at);
    this.told.held(at);
  }

  fit() {
    const width = Math.floor(this.box.clientWidth);
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.plot.height });
  }

  draw(data, min, max) {
    this.plot.batch(() => {
      this.plot.setData(data, false);
      this.plot.setScale("x", { min, max });
    });
    if (!known(this.plot.cursor.idx)) this.#legend(data[0].length - 1);
    say(this.said, this.#inWords(data, max - min));
  }

  #plot() {
    const { spec, colours } = this;
    const font = "11px system-ui, sans-serif";
    const axis = {
      stroke: () => colours.dim, font, ticks: { show: false },
      grid: { stroke: () => colours.grid, width: 1 },
    };
    const top = (max) => (known(max) && max > 0 ? max * 1.12 : 1);
    return new uPlot({
      width: Math.max(200, Math.floor(this.box.clientWidth)),
      height: spec.tall ? TALL : LOW,
      padding: [8, 18, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: SYNC, setSeries: false }, drag: { x: false, y: false, setScale: false }, y: false, points: { size: 6 } },
      scales: {
        x: { time: true, auto: false },
        y: { range: spec.share ? [0, 1.04] : (_, __, max) => [0, spec.whole ? Math.max(4, top(max)) : top(max)] },
      },
      axes: [
        { ...axis, space: 72, size: 22, gap: 3, values: (_, ticks, __, ___, step) => ticks.map((at) => (step < 60 ? time : shortTime)(1000 * at)), incrs: [10, 15, 30, 60, 120, 180, 300, 600, 900, 1200] },
        { ...axis, space: 28, size: 52, gap: 4, values: (_, ticks) => ticks.map((value) => spec.axis(value)), ...(spec.share && { incrs: [0.25] }), ...(spec.whole && { incrs: [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000] }) },
      ],
      series: [{}, ...spec.lines.map(({ label, colour, dash, width, area }) => ({
        label, width, dash: DASHES[dash], spanGaps: false,
        stroke: () => colours[colour],
        ...(area && { fill: () => colours["fill-area"] }),
        points: { show: true, size: 4, filter: lonely },
      }))],
      hooks: {
        drawClear: [(plot) => this.#under(plot)],
        draw: [(plot) => this.#over(plot)],
        setCursor: [(plot) => this.#cursor(plot)],
      },
    }, [[], ...spec.lines.map(() => [])], this.box);
  }

  /** Below the lines: bands, and what was unknown. */
  #under(plot) {
    const { ctx, bbox } = plot;
    const { colours, scene, spec } = this;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const y = (value) => plot.valToPos(value, "y", true);
    if (spec.share) {
      ctx.fillStyle = colours["warn-band"];
      ctx.fillRect(bbox.left, y(scene.crit), bbox.width, y(scene.warn) - y(scene.crit));
      ctx.fillStyle = colours["crit-band"];
      ctx.fillRect(bbox.left, y(1), bbox.width, y(scene.crit) - y(1));
    }
    const ratio = devicePixelRatio || 1;
    for (const [from, to, reason] of spans(plot.data[0], scene.unknown)) {
      const x0 = plot.valToPos(from - scene.step / 2, "x", true);
      const x1 = plot.valToPos(to + scene.step / 2, "x", true);
      hatch(ctx, x0, bbox.top, x1 - x0, bbox.height, colours["unknown-hatch"], ratio);
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      ctx.fillStyle = colours.text;
      write(ctx, [`unknown: ${whyPart(reason)}`, "unknown"], x0, bbox.top, x1 - x0, bbox.height, 13 * ratio);
    }
    ctx.restore();
  }

  /** Above the lines: what is full, and when sources went or came back. */
  #over(plot) {
    const { ctx, bbox } = plot;
    const { colours, scene, spec } = this;
    const ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.lineWidth = ratio;
    const rule = (x0, y0, x1, y1, colour, dash) => {
      ctx.strokeStyle = colour;
      ctx.setLineDash(dash.map((n) => n * ratio));
      ctx.beginPath();
      ctx.moveTo(x0, y0);
      ctx.lineTo(x1, y1);
      ctx.stroke();
    };
    if (spec.share) {
      const y = Math.round(plot.valToPos(1, "y", true)) + 0.5;
      rule(bbox.left, y, bbox.left + bbox.width, y, colours.crit, []);
    }
    for (const mark of scene.marks) {
      if (mark.time < plot.scales.x.min || mark.time > plot.scales.x.max) continue;
      const x = Math.round(plot.valToPos(mark.time, "x", true)) + 0.5;
      rule(x, bbox.top, x, bbox.top + bbox.height, colours.mark, [3, 3]);
    }
    ctx.restore();
  }

  #cursor(plot) {
    const { idx, left } = plot.cursor;
    const here = known(idx) && left >= 0;
    this.#legend(here ? idx : plot.data[0].length - 1);
    say(this.at, here ? `at ${time(1000 * plot.data[0][idx])}` : "");
    this.told.pointed(here ? plot.data[0][idx] : null, null);
  }

  #legend(i) {
    const columns = this.plot.data.slice(1);
    this.values.forEach((value, n) => say(value, this.#value(columns[n]?.[i], this.scene.names[n]?.[i])));
  }

  /** `97.6 %`, or `97.6 %, rank 2` */
  #value(value, name) {
    if (!known(value)) return this.spec.nothing;
    return `${this.spec.format(value)}${name ? `, ${name}` : ""}`;
  }

  #key(event) {
    const { plot } = this;
    const last = plot.data[0].length - 1;
    if (last < 0) return;
    const at = known(plot.cursor.idx) ? plot.cursor.idx : last;
    const far = event.shiftKey ? 10 : 1;
    const to = { ArrowLeft: at - far, ArrowRight: at + far, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.leave();
    if (to === undefined) return;
    event.preventDefault();
    const i = Math.max(0, Math.min(last, to));
    this.#hold(plot.data[0][i]);
    const values = this.spec.lines.map(({ label }, n) => `${label} ${this.#value(plot.data[n + 1][i], this.scene.names[n]?.[i])}`);
    this.told.pointed(plot.data[0][i], `${time(1000 * plot.data[0][i])}: ${values.join(", ")}`);
  }

  /** The chart for who doesn't see it. */
  #inWords([times, ...columns], seconds) {
    const lines = this.spec.lines.map(({ label }, i) => {
      const all = columns[i].filter(known);
      if (all.length === 0) return `${label}: ${this.#value(null)}`;
      const [low, high] = [Math.min(...all), Math.max(...all)];
      return `${label}: now ${this.#value(columns[i].at(-1), this.scene.names[i]?.at(-1))}, lowest ${this.spec.format(low)}, highest ${this.spec.format(high)}`;
    });
    const unknown = spans(times, this.scene.unknown)
      .map(([from, to, reason]) => `unknown from ${time(1000 * from)} to ${time(1000 * (to + this.scene.step))}: ${whyPart(reason)}`);
    return `The last ${span(seconds)}. ${[...lines, ...unknown.slice(-5)].join(". ")}. Arrow keys move through time.`;
  }
}

/** Why the usage is unknown, in each step in which these are too: of a page without it requests may be known. */
const gaps = (reasons, columns) => reasons.map((reason, i) => (columns.some((column) => known(column[i])) ? null : reason));

/** A point between two gaps has no line to be seen by. */
function lonely(plot, series) {
  const column = plot.data[series];
  const found = [];
  column.forEach((value, i) => {
    if (known(value) && !known(column[i - 1]) && !known(column[i + 1])) found.push(i);
  });
  return found;
}

/** The first of the texts that has room in the middle of a box, flat or else upright. */
function write(ctx, texts, x, y, width, height, line) {
  for (const text of texts) {
    const length = ctx.measureText(text).width + line / 2;
    const flat = length < width;
    if (!flat && !(length < height && width >= line)) continue;
    ctx.save();
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.translate(x + width / 2, y + height / 2);
    if (!flat) ctx.rotate(-Math.PI / 2);
    ctx.fillText(text, 0, 0);
    ctx.restore();
    return;
  }
}

function hatch(ctx, x, y, width, height, colour, ratio) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, width, height);
  ctx.clip();
  ctx.strokeStyle = colour;
  ctx.lineWidth = ratio;
  ctx.beginPath();
  const step = 7 * ratio;
  // Bound to the page, not to the span, so that it does not crawl.
  const from = Math.floor((x - height) / step) * step;
  for (let at = from; at < x + width; at += step) {
    ctx.moveTo(at, y + height);
    ctx.lineTo(at + height, y);
  }
  ctx.stroke();
  ctx.restore();
}
