
"use strict";
// Everything that the server says is shown as text, never as markup.
const EVERY_MS = 1000, RATE_MS = 10000, SHARE_MS = 60000, PLOTTED = 120, SHOWN_GROUPS = 10;
const KEY = "parapet-admin-key";
const by = (id) => document.getElementById(id);
const views = new Map();
let key = sessionStorage.getItem(KEY), timer = 0, lastAnswer = null, asking = false;

function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const count = (value) => Math.round(value).toLocaleString("en");
const few = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
const percent = (part, whole) => whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "–";
function ms(value) {
  if (value == null) return "–";
  return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ms`;
}

function authorised(headers = {}) {
  return key ? { ...headers, authorization: `Bearer ${key}` } : headers;
}

async function ask(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", credentials: "omit", ...options });
  const body = await answer.json().catch(() => ({}));
  if (answer.status === 401) throw new Locked();
  if (!answer.ok) throw new Error(typeof body.error === "string" ? body.error : `status ${answer.status}`);
  return body;
}
class Locked extends Error {}

async function poll() {
  if (asking) return;
  clearTimeout(timer);
  asking = true;
  try {
    const state = await ask("/live/state", { headers: authorised(), signal: AbortSignal.timeout(5000) });
    lastAnswer = new Date();
    say(`updated ${lastAnswer.toLocaleTimeString("en-GB")}`, false);
    show(state);
  } catch (error) {
    if (error instanceof Locked) { asking = false; return locked(); }
    const since = lastAnswer ? ` since ${lastAnswer.toLocaleTimeString("en-GB")}` : "";
    say(`no answer${since} (${error.message}); trying again`, true);
  }
  asking = false;
  timer = setTimeout(poll, EVERY_MS);
}

function say(text, lost) {
  by("connection").textContent = text;
  by("connection").classList.toggle("lost", lost);
}

function locked() {
  by("login-error").textContent = key ? "This is no admin key." : "";
  forget();
}

function forget() {
  key = null;
  sessionStorage.removeItem(KEY);
  clearTimeout(timer);
  views.clear();
  by("models").replaceChildren();
  by("forget").hidden = true;
  by("server").hidden = true;
  by("login").hidden = false;
  say("", false);
  by("key").value = "";
  by("key").focus();
}

by("login").addEventListener("submit", (event) => {
  event.preventDefault();
  key = by("key").value.trim();
  if (!key) return;
  sessionStorage.setItem(KEY, key);
  poll();
});
by("forget").addEventListener("click", () => { by("login-error").textContent = ""; forget(); });

function show(state) {
  by("login").hidden = true;
  by("key").value = "";
  by("forget").hidden = !key;
  by("server").hidden = false;
  const [word, kind] = state.draining ? ["draining", "bad"] : state.ready ? ["ready", "good"] : ["not ready", "bad"];
  by("server").textContent = `${state.version}, ${word}`;
  by("server").className = `tag ${kind}`;
  const names = new Set(state.models.map((model) => model.name));
  for (const [name, view] of views) {
    if (!names.has(name)) { view.section.remove(); views.delete(name); }
  }
  for (const model of state.models) {
    let view = views.get(model.name);
    if (!view) {
      view = new View(model.name);
      views.set(model.name, view);
      by("models").append(view.section);
    }
    view.update(model, state.window_s);
  }
}

/* What is known of one model, and where it is shown. */
class View {
  constructor(name) {
    this.name = name;
    this.past = [];
    this.head = el("div", { class: "model-head" });
    this.numbers = el("div", { class: "numbers" });
    this.latency = el("tbody");
    this.latencyNote = el("p", { class: "hint" });
    this.plot = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.plot.setAttribute("viewBox", "0 0 600 120");
    this.plot.setAttribute("preserveAspectRatio", "none");
    this.plot.setAttribute("role", "img");
    this.plotNote = el("p", { class: "hint" });
    this.pools = el("div");
    this.groupsNow = el("div", { "data-groups": "now" });
    this.groupsDecoded = el("div", { "data-groups": "decoded" });
    this.groupsTitle = el("h3");
    this.section = el("section", { class: "model", "data-model": name },
      this.head, this.numbers,
      el("div", { class: "halves" },
        el("div", { class: "card" }, el("h3", { text: "Latency" }), this.latencyTable(), this.latencyNote, this.plot, this.plotNote),
        this.switches()),
      el("div", { class: "card" }, el("h3", { text: "Instances" }), this.pools),
      el("div", { class: "halves" },
        el("div", { class: "card" }, this.groupsTitle, this.groupsNow),
        el("div", { class: "card" }, el("h3", { text: "The last groups that reconstructed a prediction" }), this.groupsDecoded)));
  }

  latencyTable() {
    const heads = ["", "p50", "p99", "p99.9"].map((text) => el("th", { scope: "col", text }));
    return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads)), this.latency));
  }

  switches() {
    const act = (text, onclick) => el("button", { type: "button", text, onclick });
    this.redundancy = el("span", { "data-switch": "redundancy" });
    this.redundancyButton = act("", () => this.toggle());
    this.holdBack = el("span", { "data-switch": "hold-back" });
    this.fixed = el("input", { type: "number", min: 0, max: 60000, step: "any", "aria-label": "fixed hold-back in milliseconds", placeholder: "ms" });
    this.percentile = el("input", { type: "number", min: 50, max: 99.99, step: "any", "aria-label": "percentile of the hold-back", placeholder: "%" });
    const number = (input) => input.value.trim() === "" ? NaN : Number(input.value);
    this.holdBackControls = [
      this.fixed, act("Fix", () => this.send("hold_back", { fixed_ms: number(this.fixed) })),
      this.percentile, act("Learn", () => this.send("hold_back", { percentile: number(this.percentile) / 100 })),
      act("As configured", () => this.send("hold_back", { configured: true })),
    ];
    this.refused = el("p", { class: "refused", role: "alert" });
    return el("div", { class: "card" }, el("h3", { text: "Switches" }),
      el("div", { class: "switch" }, el("strong", { text: "Redundancy" }), this.redundancy, this.redundancyButton),
      el("div", { class: "switch" }, el("strong", { text: "Hold-back" }), this.holdBack),
      el("div", { class: "switch" }, ...this.holdBackControls),
      this.refused,
      el("p", { class: "hint", text: "For queries that arrive from now on. A reload of the configuration or a restart puts both back to what is configured." }));
  }

  /* Switching off asks twice. */
  toggle() {
    const on = this.model.switches.redundancy;
    if (on && !this.sure) {
      this.sure = true;
      setTimeout(() => { this.sure = false; this.showSwitches(); }, 5000);
      return this.showSwitches();
    }
    this.sure = false;
    this.send("redundancy", { on: !on });
  }

  async send(what, body) {
    this.refused.textContent = "";
    try {
      const path = `/live/models/${encodeURIComponent(this.name)}/${what}`;
      this.model.switches = await ask(path, {
        method: "POST", headers: authorised({ "content-type": "application/json" }), body: JSON.stringify(body),
      });
      this.showSwitches();
      poll();
    } catch (error) {
      if (error instanceof Locked) return locked();
      this.refused.textContent = `Not switched: ${error.message}`;
    }
  }

  showSwitches() {
    const { redundancy, hold_back: changed, has_redundancy: some, has_hold_back: waits } = this.model.switches;
    this.redundancy.textContent = !some ? "the strategy has none" : redundancy ? "on" : "OFF";
    this.redundancy.className = `tag ${redundancy || !some ? (some ? "good" : "") : "bad"}`;
    this.redundancyButton.textContent = !redundancy ? "Switch on" : this.sure ? "Really switch off?" : "Switch off";
    this.redundancyButton.disabled = !some;
    const how = changed == null ? "as configured"
      : "fixed_ms" in changed ? `fixed here at ${ms(changed.fixed_ms)}`
      : `learned here: percentile ${few(changed.percentile * 100)}`;
    this.holdBack.textContent = !waits ? "the strategy has none" : `${ms(this.model.hold_back_ms)}, ${how}`;
    this.holdBack.className = `tag ${waits && changed != null ? "bad" : ""}`;
    for (const control of this.holdBackControls) control.disabled = !waits;
  }

  /* What has grown by how much since about so long ago. */
  since(period) {
    const now = this.past.at(-1);
    const from = this.past.find((then) => now.at_ms - then.at_ms <= period) ?? now;
    const grown = (of) => Math.max(0, of(now) - of(from));
    return { seconds: (now.at_ms - from.at_ms) / 1000, grown };
  }

  update(model, window) {
    const before = this.past.at(-1);
    // It was started anew.
    if (before && (before.at_ms > model.at_ms || before.totals.accepted > model.totals.accepted)) this.past = [];
    this.model = model;
    if (this.past.at(-1)?.at_ms !== model.at_ms) this.past.push(model);
    if (this.past.length > PLOTTED) this.past.shift();
    const strategies = model.classes.map((each) => {
      const code = each.code === "none" || each.code === "backup" ? "" : `, ${each.code}`;
      return el("span", { class: "tag", text: `${each.class}: ${each.strategy}${code}` });
    });
    this.head.replaceChildren(el("h2", { text: model.name }), el("span", { class: "tag", text: `version ${model.model_version}` }), ...strategies);
    this.showNumbers(model);
    this.showLatency(model.latency, window);
    this.showSwitches();
    this.showInstances(model.instances);
    this.showGroups(model);
  }

  showNumbers(model) {
    const rate = this.since(RATE_MS), long = this.since(SHARE_MS);
    const perSecond = (of) => rate.seconds > 0 ? rate.grown(of) / rate.seconds : 0;
    const sum = (of) => (state) => state.classes.reduce((total, each) => total + of(each), 0);
    const total = (name) => (state) => state.totals[name];
    const accepted = long.grown(total("accepted")), reconstructed = long.grown(total("reconstructed"));
    const sources = [["late_truth", "answers"], ["audit", "audits"]].map(([source, word]) => {
      const [agreed, not] = [0, 1].map((index) => sum((each) => each.agreement[source][index]));
      return { word, agreed: long.grown(agreed), of: long.grown(agreed) + long.grown(not), ever: agreed(model), everOf: agreed(model) + not(model) };
    });
    const accuracy = sources.find((source) => source.of > 0) ?? sources.find((source) => source.everOf > 0);
    const budget = model.classes.map((each) => each.budget).find((each) => each);
    const issued = long.grown(sum((each) => each.issued));
    const cards = [
      this.number("requests", `${few(perSecond(total("accepted")))}/s`,
        [`${count(model.in_flight)} in memory, ${count(model.queued)} waiting of ${count(model.queue_limit)}`]),
      this.number("reconstructed", percent(reconstructed, accepted),
        ["answered by reconstruction in the last minute", `${count(model.totals.reconstructed)} in all`]),
      this.number("accuracy", accuracy ? (accuracy.of > 0 ? percent(accuracy.agreed, accuracy.of) : percent(accuracy.ever, accuracy.everOf)) : "–",
        ["of reconstructions agree with the model", ...sources.map((source) => `${source.word}: ${percent(source.ever, source.everOf)} of ${count(source.everOf)}`)]),
      this.number("budget", budget ? percent(issued, accepted) : "–",
        budget ? [`redundant requests in the last minute; ${percent(budget.share, 1)} allowed`, this.bar(budget.left / budget.burst, `${few(budget.left)} of ${few(budget.burst)} at once left`)] : ["no redundant requests"]),
      this.number("refused", `${few(perSecond(total("rejected")))}/s`,
        ["turned away", `${few(perSecond(total("shed")))}/s redundant requests shed`, `${few(perSecond(total("failed")))}/s answered with an error`], perSecond(total("rejected")) + perSecond(total("failed")) > 0),
    ];
    if (model.totals.violations > 0) cards.push(this.number("violations", count(model.totals.violations), ["violations of an invariant: report this"], true));
    this.numbers.replaceChildren(...cards);
  }

  number(name, value, notes, alarm = false) {
    const said = notes.map((note) => typeof note === "string" ? el("span", { text: note }) : note);
    return el("div", { class: `card number${alarm ? " alarm" : ""}`, "data-number": name }, el("b", { text: value }), ...said);
  }

  bar(share, text) {
    const full = el("div");
    full.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
    return el("span", {}, el("div", { class: "bar" }, full), text);
  }

  showLatency(latency, window) {
    const row = (name, kind, of) => el("tr", { "data-latency": kind },
      el("td", {}, el("span", { class: `key ${kind}` }), name),
      ...(of && of.count > 0 ? [of.p50_ms, of.p99_ms, of.p999_ms] : [null, null, null]).map((value) => el("td", { text: ms(value) })));
    this.latency.replaceChildren(row("as answered", "answered", latency.answered), row("without reconstruction", "without", latency.without));
    this.latencyNote.textContent = `last ${window} s: ${count(latency.answered.count)} answers, ${count(latency.approximated)} of them not the model's own. Without: when its own came after all, or its deadline.`;
    const points = this.past.map((state) => [state.at_ms, state.latency.answered.p999_ms, state.latency.without.p999_ms]);
    const top = Math.max(1, ...points.flatMap(([, a, b]) => [a, b ?? 0])) * 1.1;
    const end = points.at(-1)[0];
    const line = (index, kind) => {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      const at = points.filter((point) => point[index] != null)
        .map((point) => `${(600 - (end - point[0]) / 200).toFixed(1)} ${(120 - 118 * point[index] / top).toFixed(1)}`);
      path.setAttribute("d", at.length ? `M${at.join("L")}` : "");
      path.setAttribute("class", kind);
      return path;
    };
    const floor = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [name, value] of [["x1", 0], ["x2", 600], ["y1", 119.5], ["y2", 119.5]]) floor.setAttribute(name, value);
    this.plot.replaceChildren(floor, line(2, "without"), line(1, "answered"));
    this.plot.setAttribute("aria-label", "p99.9 of the last two minutes, as answered and without reconstruction");
    this.plotNote.textContent = `p99.9 over the last 2 minutes, from 0 to ${ms(top)}`;
  }

  showInstances(instances) {
    const pools = new Map();
    for (const instance of instances) pools.set(instance.pool, [...(pools.get(instance.pool) ?? []), instance]);
    this.pools.replaceChildren(...[...pools].map(([pool, members]) => {
      const up = members.filter((each) => each.state === "up").length;
      const tiles = members.map((each) => {
        const flight = each.in_flight > 0 ? `${count(each.in_flight)} in flight, oldest ${ms(each.oldest_ms)}` : "idle";
        const bad = [each.failed > 0 ? `${each.failed} of the last ${each.of} failed` : "", each.ejections > 0 ? `ejected ${each.ejections} times` : "", each.unready ?? ""];
        return el("div", { class: `tile ${each.state}`, "data-state": each.state, "data-instance": each.name },
          el("b", { text: each.name }), el("span", { class: "state", text: each.state }),
          el("small", { text: flight }), el("small", { text: `takes ${ms(each.latency_ms)}` }),
          ...bad.filter(Boolean).map((text) => el("small", { text })));
      });
      return el("div", { class: "pool" }, el("h3", { text: `${pool}: ${up} of ${members.length} up` }), el("div", { class: "tiles" }, ...tiles));
    }));
  }

  showGroups(model) {
    this.groupsTitle.textContent = `Groups in memory: ${count(model.groups_in_memory)}`;
    const none = (text) => [el("p", { class: "hint", text })];
    const now = model.groups.toSorted((one, other) => one.age_ms - other.age_ms).slice(0, SHOWN_GROUPS).map(group);
    this.groupsNow.replaceChildren(...(now.length ? now : none("none")));
    const decoded = model.decoded.toReversed().slice(0, SHOWN_GROUPS).map(group);
    this.groupsDecoded.replaceChildren(...(decoded.length ? decoded : none("none yet")));
  }
}

/* One coding group: its k members and r parity queries. */
function group(view) {
  const chip = (text, kind) => el("span", { class: `chip ${kind}`, text });
  const members = view.members.map((member) => {
    if (member.reconstructed) return chip(member.predicted ? "reconstructed, own came later" : "reconstructed", "reconstructed");
    if (member.status === "filler") return chip("filler", "own");
    if (member.predicted) return chip("own prediction", "own");
    if (member.status === "waiting") return member.late ? chip("late", "late") : chip("waiting", "");
    return chip(member.status === "kept" ? "kept for the others" : "ended", "");
  });
  const free = Array.from({ length: Math.max(0, view.k - view.members.length) }, () => chip("free", "empty"));
  const words = { open: "not sent", encoding: "encoding", in_flight: "in flight", output: "answered", dead: "none" };
  const parity = view.parity.map((state) => chip(`parity ${words[state] ?? state}`, state === "dead" ? "dead" : state === "open" ? "empty" : "parity"));
  return el("div", { class: "group", "data-group": view.id },
    el("span", { class: "id", text: `${view.id}, ${ms(view.age_ms)}` }), ...members, ...free, ...parity);
}

poll();
