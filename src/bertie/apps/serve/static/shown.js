// Pieces of an answer as elements. Texts are always set as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";

// A number with digits; one that rounds to zero has no sign.
export const fixed = (value, digits) => value.toFixed(digits).replace(/^-(?=[0.]+$)/, "");

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function bars(pairs, { percent = true, best = true } = {}) {
  const list = element("ul", { class: "bars" });
  pairs.forEach(([name, value], i) => {
    const shown = percent ? `${(100 * value).toFixed(1)}%` : fixed(value, 3);
    const fill = element("div", { class: "fill" });
    fill.style.width = `${Math.max(0, Math.min(1, value)) * 100}%`;
    const row = element("li", best && i === 0 ? { class: "best" } : {}, element("span", {}, name), element("div", { class: "track", "aria-hidden": "true" }, fill), element("span", { class: "value" }, shown));
    list.append(row);
  });
  return list;
}

// spans: start and end in code points; those that overlap an earlier one are left out.
export function marked(text, spans) {
  const characters = [...text], shown = element("p", { class: "marked" }), kinds = [...new Set(spans.map((one) => one.entity_group ?? ""))];
  let at = 0;
  for (const one of [...spans].sort((a, b) => a.start - b.start)) {
    if (one.start < at || one.end <= one.start) continue;
    shown.append(characters.slice(at, one.start).join(""));
    const kind = one.kind ?? `t${kinds.indexOf(one.entity_group ?? "") % 6}`;
    shown.append(element("mark", { class: kind }, characters.slice(one.start, one.end).join(""), element("small", {}, one.note)));
    at = one.end;
  }
  shown.append(characters.slice(at).join(""));
  return shown;
}

// words of /explain: blue for the answer, orange against it; the number is the tooltip and in a table.
export function weighed(texts, words) {
  const most = Math.max(...words.map((one) => Math.abs(one.value))) || 1;
  return texts.map((text, input) => {
    const characters = [...text], shown = element("p", { class: "weighed" });
    let at = 0;
    for (const one of words.filter((word) => word.input === input)) {
      const word = element("span", { class: one.value < 0 ? "against" : "for", title: fixed(one.value, 3) }, characters.slice(one.start, one.end).join(""));
      word.style.setProperty("--share", `${Math.round((75 * Math.abs(one.value)) / most)}%`);
      shown.append(characters.slice(at, one.start).join(""), word);
      at = one.end;
    }
    shown.append(characters.slice(at).join(""));
    return shown;
  });
}

// attention of one head: a row for each token, a column for each token that it attends to.
export function heat(tokens, weights) {
  const head = element("tr", {}, element("td", {}), ...tokens.map((one) => element("th", { scope: "col" }, element("span", {}, one.text))));
  const body = weights.map((row, i) => element("tr", {}, element("th", { scope: "row" }, tokens[i].text), ...row.map((value, j) => {
    const cell = element("td", { title: `${tokens[i].text} → ${tokens[j].text}: ${(100 * value).toFixed(1)}%` });
    cell.style.setProperty("--share", `${Math.round(100 * value)}%`);
    return cell;
  })));
  return element("div", { class: "scroll", tabindex: "0" }, element("table", { class: "heat" }, element("thead", {}, head), element("tbody", {}, ...body)));
}

export function table(heads, rows) {
  const head = element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name)));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, String(cell ?? "–")))));
  return element("div", { class: "scroll", tabindex: "0" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
}

export function arcs(words) {
  const widths = words.map((one) => Math.max(40, [...one.text].reduce((sum, c) => sum + (c > "\u2e7f" ? 15 : 9), 0) + 16));
  const middles = widths.map((width, i) => widths.slice(0, i).reduce((a, b) => a + b, 0) + width / 2);
  const far = Math.max(1, ...words.map((one, i) => (one.head ? Math.abs(one.head - 1 - i) : 1)));
  const height = 40 + 22 * Math.min(far, 7), total = widths.reduce((a, b) => a + b, 0) + 10;
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ class: "arcs", width: total, height: height + 30, viewBox: `0 0 ${total} ${height + 30}`, role: "img" })) svg.setAttribute(key, value);
  const add = (name, attributes, text) => { const made = document.createElementNS(SVG, name); for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value); if (text) made.textContent = text; svg.append(made); };
  words.forEach((one, i) => {
    add("text", { x: middles[i], y: height + 18, "text-anchor": "middle" }, one.text);
    if (!one.head) return;
    const from = middles[one.head - 1] + (one.head - 1 < i ? 6 : -6), to = middles[i], top = height - 14 - 22 * Math.min(Math.abs(one.head - 1 - i), 7);
    add("path", { d: `M${from} ${height} C${from} ${top} ${to} ${top} ${to} ${height}` });
    add("text", { x: (from + to) / 2, y: top + (height - top) * 0.22, "text-anchor": "middle", class: "relation" }, one.relation);
  });
  return element("div", { class: "scroll", tabindex: "0" }, svg);
}
