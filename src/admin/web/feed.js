// What kvgauge says: its history, then one moment each second. By fetch and not by EventSource, which
// can't send a token.

import { allLegible } from "./words.js";

const TOKEN = "kvgauge-token";
/** Between two tries, seconds; each pause is up to a fifth longer, so that not all pages come at once. */
const PAUSES = [0.5, 1, 2, 4, 8, 10];
/** Without a byte for so long the connection is given up; a stream says something at least every 15 s. */
const SILENCE = 20_000;
/** For the history, which is some hundred kilobytes. */
const HISTORY_TIMEOUT = 15_000;
/** Of one event; a moment is a few dozen kilobytes. */
const MOST_BYTES = 4 * 1024 * 1024;

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};

/** What an answer that is no stream means. */
class Refused extends Error {
  constructor(answer) {
    super(`kvgauge answers ${answer.status}`);
    this.status = answer.status;
    const after = Number(answer.headers.get("retry-after"));
    this.after = Number.isFinite(after) && after > 0 ? Math.min(after, 60) : null;
  }
}

export class Feed {
  #listener;
  #abort = null;
  #timer = null;
  #failures = 0;

  /** `listener` has `history`, `moment`, `lost` and `wantsToken`. */
  constructor(listener) {
    this.#listener = listener;
    /** When the last moment came, by this browser's steady clock. */
    this.heardAt = null;
    /** When the next try is. */
    this.nextTry = null;
  }

  start() {
    this.stop();
    this.#run();
  }

  stop() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    this.#abort = null;
    this.nextTry = null;
  }

  async #run() {
    const abort = new AbortController();
    this.#abort = abort;
    let failure;
    try {
      await this.#history(abort.signal).catch((error) => {
        // Now can be seen without the past; whoever is not there, or asks for a token, gives neither.
        if (!(error instanceof Refused) || error.status === 401) throw error;
      });
      await this.#stream(abort);
      failure = new Error("kvgauge ended the stream");
    } catch (error) {
      failure = error;
    }
    // Another start or a stop has taken over.
    if (this.#abort !== abort) return;
    this.#abort = null;
    if (failure.status === 401) {
      const had = token.get() !== null;
      token.forget();
      this.#listener.wantsToken(had);
      return;
    }
    const pause = PAUSES[Math.min(this.#failures, PAUSES.length - 1)];
    this.#failures += 1;
    const wait = 1000 * Math.max(failure.after ?? 0, pause * (1 + Math.random() / 5));
    this.nextTry = performance.now() + wait;
    this.#timer = setTimeout(() => this.start(), wait);
    this.#listener.lost(failure);
  }

  async #history(signal) {
    const answer = await this.#get("kv/history", "application/json", AbortSignal.any([signal, AbortSignal.timeout(HISTORY_TIMEOUT)]));
    this.#listener.history(allLegible(await answer.json()));
  }

  async #stream(abort) {
    let silence = setTimeout(() => abort.abort(new Error("kvgauge says nothing any more")), SILENCE);
    try {
      const answer = await this.#get("kv/stream", "text/event-stream", abort.signal);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const parse = events((name, data) => {
        if (name !== "moment") return;
        const moment = allLegible(JSON.parse(data));
        this.#failures = 0;
        this.heardAt = performance.now();
        this.#listener.moment(moment);
      });
      for (;;) {
        const { done, value } = await reader.read();
        clearTimeout(silence);
        if (done) return;
        silence = setTimeout(() => abort.abort(new Error("kvgauge says nothing any more")), SILENCE);
        parse(value);
      }
    } finally {
      clearTimeout(silence);
    }
  }

  async #get(path, type, signal) {
    const headers = { Accept: type };
    const shown = token.get();
    if (shown !== null) headers.Authorization = `Bearer ${shown}`;
    const answer = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" });
    if (!answer.ok) {
      answer.body?.cancel();
      throw new Refused(answer);
    }
    return answer;
  }
}

/** Takes an event stream in pieces as they come (WHATWG HTML, 9.2.6), and hands out whole events. */
export function events(take) {
  let rest = "";
  let name = "";
  let data = [];
  return (piece) => {
    const lines = (rest + piece).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    if (rest.length > MOST_BYTES) throw new Error("an event is too large");
    for (const line of lines) {
      if (line === "") {
        if (data.length > 0) take(name || "message", data.join("\n"));
        name = "";
        data = [];
      } else if (line.startsWith("event:")) {
        name = line.slice(6).trim();
      } else if (line.startsWith("data:")) {
        data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
  };
}
