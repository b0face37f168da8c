// The page: choose a model, send a text, see the answer. State is in the address after #, so that a link holds it.
import { KINDS } from "./kinds.js";
import { bars, element, fixed, heat, table, weighed } from "./shown.js";
import { WORDS } from "./words.js";

const $ = (id) => document.getElementById(id);
const saved = (name, value) => { try { if (value === undefined) return localStorage.getItem(name); localStorage.setItem(name, value); } catch { return null; } };
const state = { models: Object.create(null), model: "", kind: "", values: {}, last: null, asking: 0 };
let words = WORDS.en;

const say = (template, values) => template.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const headers = () => ({ "Content-Type": "application/json", ...($("key").value ? { Authorization: `Bearer ${$("key").value}` } : {}) });

const title = (name) => (state.models[name].index ? `${words.kinds.search}: ${state.models[name].index}` : name);

function setLanguage(language) {
  words = Object.hasOwn(WORDS, language) ? WORDS[language] : WORDS.en;
  document.documentElement.lang = language;
  for (const one of document.querySelectorAll("[data-word]")) one.textContent = words[one.dataset.word];
  for (const one of $("model").options) one.textContent = title(one.value);
  saved("language", language);
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  saved("theme", theme);
}

function draw() {
  const model = state.models[state.model];
  if (!model) return;
  const kinds = model.answers.filter((kind) => KINDS[kind] && !(kind === "vectors" && model.answers.includes("embed")));
  if (!kinds.includes(state.kind)) state.kind = kinds[0];
  $("task").textContent = words.tasks[state.kind];
  const facts = model.index ? [[words.documents, model.documents], [words.passages, model.passages], [words.kinds.vectors, model.vectors_of ?? words.no]] : [[words.maxLength, model.max_input_length], [words.device, `${model.device}, ${model.model_dtype}`], [words.weights, model.model_sha.slice(0, 12)]];
  if (model.run) facts.push([words.run, model.run.name]);
  $("use-box").hidden = Boolean(model.index);
  $("use").replaceChildren();
  if ($("use-box").open && !model.index) showUse();
  if (model.calibrated) facts.push([words.probability, words.calibrated]);
  $("facts").replaceChildren(...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, String(value)))));
  const several = kinds.length > 1 && kinds.some((kind) => words.kinds[kind] && kind !== "vectors") ? kinds : [];
  $("kinds").replaceChildren(...several.map((kind) => {
    const button = element("button", { type: "button", "aria-pressed": String(kind === state.kind) }, words.kinds[kind] ?? words.output);
    button.addEventListener("click", () => { state.kind = kind; state.values = {}; clear(); draw(); });
    return button;
  }));
  const kind = KINDS[state.kind];
  $("fields").replaceChildren(...kind.fields(model).flatMap((field) => drawField(field, model)));
  const examples = kind.examples(model);
  const shown = examples[document.documentElement.lang] ?? examples.en;
  $("examples").replaceChildren(element("span", { class: "hint", id: "examples-title" }, words.examples), ...shown.map((values) => {
    const button = element("button", { type: "button" }, Object.values(values).join("\n"));
    button.addEventListener("click", () => { state.values = { ...values }; draw(); send(); });
    return button;
  }));
  if (!$("output").childElementCount) $("output").replaceChildren(...before(model));
}

const MOST_LABELS = 40;

// What the answer can be, until there is one.
function before(model) {
  const known = state.kind === "tagging" ? [...new Set(model.labels.filter((tag) => tag !== "O").map((tag) => tag.replace(/^[A-Z]-/, "")))] : model.labels;
  const names = known.slice(0, MOST_LABELS).map((label) => element("li", {}, label)), rest = known.length - names.length;
  if (rest > 0) names.push(element("li", {}, say(words.more, { n: rest })));
  const labels = names.length ? [element("p", { class: "hint" }, words.labels), element("ul", { class: "chips" }, ...names)] : [];
  return [element("p", { class: "hint" }, words.before), ...labels];
}

function drawField(field, model) {
  const area = element("textarea", { id: `field-${field.name}`, name: field.name, rows: field.short ? "1" : "4", class: field.short ? "short" : "", required: "" });
  area.value = state.values[field.name] ?? "";
  area.addEventListener("input", () => { state.values[field.name] = area.value; });
  const label = element("label", { class: "field" }, element("span", {}, words[field.word]), area);
  if (!field.mask) return [label];
  const button = element("button", { type: "button" }, words.insertMask);
  button.addEventListener("click", () => { area.setRangeText(model.mask_token, area.selectionStart, area.selectionEnd, "end"); state.values[field.name] = area.value; area.focus(); });
  return [label, button];
}

function clear() {
  state.asking += 1;
  $("output").replaceChildren();
  $("figures").textContent = $("copied").textContent = "";
  for (const id of ["share", "words-box", "attention-box", "tokens-box", "raw-box"]) $(id).hidden = true;
}

function fail(message) {
  clear();
  $("output").replaceChildren(element("p", { class: "error", role: "alert" }, message));
}

const problem = (error) => element("p", { class: "error", role: "alert" }, error instanceof TypeError ? words.failed : error.message);

async function ask(path, body) {
  const response = await fetch(path, { method: "POST", headers: headers(), body: JSON.stringify(body) });
  const found = await response.json().catch(() => ({}));
  if (response.ok) return [found, response.headers];
  if (response.status === 401) { $("key-field").hidden = false; throw new Error(words.needKey); }
  if (response.status === 429) throw new Error(say(words.busy, { n: response.headers.get("Retry-After") ?? 1 }));
  throw new Error(found.error ?? `HTTP ${response.status}`);
}

async function send() {
  const kind = KINDS[state.kind], values = { ...state.values }, turn = ++state.asking;
  let body;
  const { index } = state.models[state.model];
  try { body = { ...kind.request(values, words), ...(index ? { index } : { model: state.model }) }; } catch (error) { fail(error.message); return; }
  $("send").disabled = true;
  try {
    const [found, heads] = await ask(kind.route, body);
    if (turn !== state.asking) return;
    const inputs = kind.explained?.(values, found);
    const read = (kind.tokens ?? ((given) => given.text ?? given.first))(values);
    state.last = { route: kind.route, body, inputs, read: inputs ?? read };
    const notes = [];
    if (+heads.get("x-bertie-truncated")) notes.push(element("p", { class: "warn" }, words.cut));
    const windows = kind.answer?.(found)?.windows;
    if (windows > 1) notes.push(element("p", { class: "warn" }, say(words.windows, { n: windows })));
    $("output").replaceChildren(...notes, ...kind.show(found, values, words));
    $("figures").textContent = say(words.figures, { tokens: heads.get("x-compute-tokens"), ms: heads.get("x-total-time"), inference: heads.get("x-inference-time") });
    $("raw").textContent = JSON.stringify(found, null, 2);
    for (const id of ["share", "tokens-box", "raw-box"]) $(id).hidden = false;
    $("words-box").hidden = inputs === undefined;
    $("words").replaceChildren();
    if (inputs !== undefined && $("words-box").open) showWords();
    history.replaceState(null, "", link());
    if (index) { $("tokens-box").hidden = true; return; }
    $("attention-box").hidden = !state.attention;
    for (const id of ["layer", "head", "attention"]) $(id).replaceChildren();
    if (state.attention && $("attention-box").open) showAttention();
    await showTokens(read, turn);
  } catch (error) {
    if (turn === state.asking) fail(error instanceof TypeError ? words.failed : error.message);
  } finally {
    $("send").disabled = false;
  }
}

async function showWords() {
  const { last } = state;
  if ($("words").childElementCount) return;
  $("words").replaceChildren(element("p", { class: "hint" }, "…"));
  try {
    const [found] = await ask("/explain", { inputs: last.inputs, model: state.model });
    if (last !== state.last) return;
    const ordered = [...found.words].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 20);
    const about = element("p", {}, say(words.explained, { about: found.explained, value: fixed(found.value, 3), baseline: fixed(found.baseline, 3) }));
    const cut = found.truncated ? [element("p", { class: "warn" }, say(words.explainedCut, { n: found.tokens }))] : [];
    const rows = ordered.map((one) => [one.text, fixed(one.value, 3)]);
    $("words").replaceChildren(about, ...cut, ...weighed(found.texts, found.words), element("p", { class: "hint" }, words.explainedHint), table([words.word, words.change], rows));
  } catch (error) {
    if (last === state.last) $("words").replaceChildren(problem(error));
  }
}

async function showAttention() {
  const { last } = state, chosen = $("layer").value ? { layer: +$("layer").value, head: +$("head").value } : {};
  try {
    const [found] = await ask("/attention", { inputs: last.read, model: state.model, ...chosen });
    if (last !== state.last) return;
    for (const [id, count, now] of [["layer", found.layers, found.layer], ["head", found.heads, found.head]]) {
      $(id).replaceChildren(...Array.from({ length: count }, (_, i) => element("option", { value: i + 1 }, String(i + 1))));
      $(id).value = now;
    }
    const cut = found.truncated ? [element("p", { class: "warn" }, say(words.explainedCut, { n: found.tokens.length }))] : [];
    $("attention").replaceChildren(...cut, heat(found.tokens, found.weights), element("p", { class: "hint" }, words.attentionHint));
  } catch (error) {
    if (last === state.last) $("attention").replaceChildren(problem(error));
  }
}

async function showTokens(text, turn) {
  let tokens;
  try { [[tokens]] = await ask("/tokenize", { inputs: text, model: state.model }); } catch (error) {
    if (turn === state.asking) $("tokens").replaceChildren(problem(error));  // the answer stays
    return;
  }
  if (turn !== state.asking) return;
  const pieces = tokens.slice(0, 600).map((one) => element("span", { class: one.special ? "piece special" : "piece" }, one.text, element("small", {}, one.id)));
  const rows = tokens.slice(0, 600).map((one) => [one.text, one.id, one.char_start, one.char_stop]);
  $("tokens").replaceChildren(element("div", { class: "pieces" }, ...pieces), table([words.piece, words.id, words.start, words.stop], rows));
}

// What the model has read and answered since the start of the server, and two versions that are compared.
async function showUse() {
  const name = state.model;
  try {
    const response = await fetch("/traffic", { headers: headers() });
    if (!response.ok) throw new Error(response.status === 401 ? words.needKey : `HTTP ${response.status}`);
    const { models, versions } = await response.json(), use = models[name];
    if (name !== state.model || !use) return;
    const parts = [element("p", {}, say(words.useRows, { n: use.rows }))];
    for (const [key, counts] of [...Object.entries(use.names), ...Object.entries(use.bins)]) {
      const pairs = Object.entries(counts).slice(0, MOST_LABELS).map(([value, count]) => [value, count / Math.max(1, use.rows)]);
      parts.push(element("h3", {}, words.quantities[key] ?? key), bars(pairs, { best: false }));
    }
    const differences = Object.entries(use.differences).map(([key, value]) => [words.quantities[key] ?? key, fixed(value, 3)]);
    if (differences.length) parts.push(element("h3", {}, words.differences), table([words.quantity, words.index], differences), element("p", { class: "hint" }, words.differencesHint));
    if (versions && [versions.old, versions.new].includes(name)) parts.push(element("h3", {}, words.versions), ...versionParts(versions));
    $("use").replaceChildren(...parts);
  } catch (error) { $("use").replaceChildren(problem(error)); }
}

function versionParts(versions) {
  const number = (value, digits) => (value === null || value === undefined ? "" : fixed(value, digits));
  const rows = [...Object.entries(versions.answered).map(([name, one]) => [name, words.answers, one]), ...(versions.compared ? [[versions.new, words.shadow, versions.shadowed]] : [])];
  const cells = rows.map(([name, by, one]) => [name, by, one.requests, number(one.confidence, 3), number(one.seconds && 1000 * one.seconds, 1)]);
  const parts = [table([words.model, "", words.requests, words.probability, "ms"], cells)];
  if (versions.share) parts.push(element("p", {}, say(words.splitShare, { name: versions.new, p: fixed(100 * versions.share, 1) })));
  if (versions.compared) parts.push(element("p", {}, say(words.agreement, { n: versions.compared, p: fixed(100 * versions.agreement, 1), low: fixed(100 * versions.agreement_95[0], 1), high: fixed(100 * versions.agreement_95[1], 1) })));
  return parts;
}

const link = () => `#${new URLSearchParams({ model: state.model, kind: state.kind, ...state.values })}`;
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const python = (value) => JSON.stringify(value).replace(/("(?:[^"\\]|\\.)*")|\btrue\b|\bfalse\b|\bnull\b/g, (all, text) => text ?? { true: "True", false: "False", null: "None" }[all]);
const COPIES = {
  "copy-link": () => location.origin + location.pathname + link(),
  "copy-curl": () => `curl ${location.origin}${state.last.route} -H 'Content-Type: application/json'${$("key").value ? ' -H "Authorization: Bearer $BERTIE_API_KEY"' : ""} -d ${quoted(JSON.stringify(state.last.body))}`,
  "copy-python": () => `import json\n${$("key").value ? "import os\n" : ""}import urllib.request\n\nbody = ${python(state.last.body)}\nheaders = {"Content-Type": "application/json"${$("key").value ? ', "Authorization": "Bearer " + os.environ["BERTIE_API_KEY"]' : ""}}\nrequest = urllib.request.Request("${location.origin}${state.last.route}", json.dumps(body).encode(), headers)\nprint(json.load(urllib.request.urlopen(request)))\n`,
};

async function copy(id) {
  const text = COPIES[id]();
  try { await navigator.clipboard.writeText(text); } catch {
    const area = element("textarea", {}); area.value = text; document.body.append(area); area.select(); document.execCommand("copy"); area.remove(); $(id).focus();
  }
  $("copied").textContent = words.copied;
}

function restore() {
  const { model, kind, ...values } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const unknown = model !== undefined && !(model in state.models);
  state.model = unknown || model === undefined ? Object.keys(state.models)[0] : model;
  state.kind = kind ?? "";
  state.values = values;
  $("model").value = state.model;
  draw();
  if (unknown) fail(say(words.noModel, { name: model }));
  return !unknown && Object.keys(values).length > 0;
}

async function begin() {
  const language = saved("language") ?? (navigator.language.startsWith("ko") ? "ko" : "en"), theme = saved("theme") ?? "auto";
  $("language").value = language; $("theme").value = theme;
  setLanguage(language); setTheme(theme);
  $("language").addEventListener("change", () => { setLanguage($("language").value); clear(); draw(); });
  $("theme").addEventListener("change", () => setTheme($("theme").value));
  $("model").addEventListener("change", () => { state.model = $("model").value; state.kind = ""; state.values = {}; clear(); draw(); });
  $("form").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  $("form").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) { event.preventDefault(); $("form").requestSubmit(); } });
  for (const id of Object.keys(COPIES)) $(id).addEventListener("click", () => copy(id));
  $("use-box").addEventListener("toggle", () => { if ($("use-box").open) showUse(); });
  $("words-box").addEventListener("toggle", () => { if ($("words-box").open && state.last) showWords(); });
  $("attention-box").addEventListener("toggle", () => { if ($("attention-box").open && state.last && !$("attention").childElementCount) showAttention(); });
  for (const id of ["layer", "head"]) $(id).addEventListener("change", showAttention);
  $("key").addEventListener("change", loadModels);
  window.addEventListener("hashchange", () => { clear(); if (restore()) send(); });
  await loadModels();
}

async function loadModels() {
  try {
    const response = await fetch("/info", { headers: headers() });
    if (response.status === 401) { $("key-field").hidden = false; fail(words.needKey); return; }
    const info = await response.json();
    state.models = Object.assign(Object.create(null), info.models);  // no name is one of every object's, as "constructor"
    state.attention = info.attention;
    for (const [name, found] of Object.entries(info.indexes)) state.models[`index:${name}`] = { ...found, index: name, answers: ["search"], labels: [] };
    $("version").textContent = `Bertie ${info.version}`;
    $("model").replaceChildren(...Object.keys(state.models).map((name) => element("option", { value: name }, title(name))));
    clear();
    if (restore()) await send();
  } catch { fail(words.failed); }
}

begin();
