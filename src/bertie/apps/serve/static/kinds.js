// One entry for each kind of model: its fields, its request, its examples, and how the answer is shown.
import { bars, element, fixed, marked, table, arcs } from "./shown.js";

const lines = (text = "") => text.split("\n").map((line) => line.trim()).filter(Boolean);
const text = { name: "text", word: "text" };
const pair = [{ name: "first", word: "first" }, { name: "second", word: "second" }];
const REVIEWS = { en: [{ text: "The soup was cold, but the waiter was friendly." }, { text: "A quiet, lovely film with a weak ending." }], ko: [{ text: "수프는 식었지만 직원은 친절했습니다." }, { text: "조용하고 아름답지만 결말이 아쉬운 영화" }] };
const NAMES = { en: [{ text: "Ada Lovelace lived in London and wrote to Charles Babbage." }], ko: [{ text: "세종대왕은 1443년 경복궁에서 훈민정음을 만들었다." }] };
const PAIRS = { en: [{ first: "It began to rain.", second: "She opened her umbrella." }, { first: "It began to rain.", second: "The library has four floors." }], ko: [{ first: "비가 오기 시작했다.", second: "그는 우산을 폈다." }, { first: "비가 오기 시작했다.", second: "도서관은 4층이다." }] };

const labels = (answer, words) => [
  element("p", { class: "verdict" }, Array.isArray(answer.label) ? answer.label.join(", ") || words.none : String(answer.label)),
  bars(Object.entries(answer.scores).sort((a, b) => b[1] - a[1]).slice(0, 20)),
];
const snippet = (hit) => {
  const characters = [...hit.text], [from, to] = hit.snippet, shown = characters.slice(from, to).join("");
  return marked(`${from ? "… " : ""}${shown}${to < characters.length ? " …" : ""}`, hit.marks.map(([start, end]) => ({ start: start - from + (from ? 2 : 0), end: end - from + (from ? 2 : 0), note: "" })));
};
const rows = (values) => ({ inputs: values.second === undefined ? [values.text] : [[values.first, values.second]] });
// explained: the text or pair whose words /explain weighs, after an answer.
const classifier = { explained: (values) => (values.second === undefined ? values.text : [values.first, values.second]), route: "/answer", fields: (model) => (model.texts === 2 ? pair : [text]), request: rows, examples: (model) => (model.texts === 2 ? PAIRS : REVIEWS), show: (found, _, words) => labels(found.answers[0], words), answer: (found) => found.answers[0] };
const { explained: _explained, ...unexplained } = classifier;
const similar = {
  route: "/similarity", fields: () => [{ name: "source", word: "source", short: true }, { name: "sentences", word: "sentences" }],
  request: (values) => ({ inputs: { source_sentence: values.source, sentences: lines(values.sentences) } }),
  examples: () => ({ en: [{ source: "The soup was cold.", sentences: "The soup had cooled down.\nThe meal was warm.\nThe train leaves at noon." }], ko: [{ source: "수프가 식었다.", sentences: "국이 차가워졌다.\n식사가 따뜻했다.\n기차는 정오에 떠난다." }] }),
  show: (found, values) => { const given = lines(values.sentences); return [bars(found.map((score, i) => [given[i], score]).sort((a, b) => b[1] - a[1]), { percent: false })]; },
  tokens: (values) => values.source,
};

export const KINDS = {
  sequence: classifier, multilabel: classifier, pattern: unexplained,
  text2text: { ...unexplained, show: (found, _, words) => [element("p", { class: "verdict" }, found.answers[0].label || words.none)] },
  several: { ...unexplained, show: (found, _, words) => Object.entries(found.answers[0].heads).flatMap(([name, one]) => [element("h3", {}, name), ...("error" in one ? [element("p", { class: "hint" }, words.otherTexts)] : labels({ scores: {}, ...one }, words))]) },
  regression: { ...classifier, show: (found, _, words) => [element("p", { class: "verdict" }, `${words.score}: ${fixed(found.answers[0].label, 4)}`)] },
  rank: {
    route: "/rerank", fields: () => [{ name: "query", word: "query", short: true }, { name: "texts", word: "texts" }],
    request: (values) => ({ query: values.query, texts: lines(values.texts), return_text: true }),
    examples: () => ({ en: [{ query: "Where is the library?", texts: "The library is in the old town hall.\nSoup is served at noon.\nBooks can be returned on Sundays." }], ko: [{ query: "도서관은 어디에 있나요?", texts: "도서관은 옛 시청 건물에 있습니다.\n점심에는 수프가 나옵니다.\n책은 일요일에도 반납할 수 있습니다." }] }),
    show: (found) => [bars(found.map((row) => [row.text, row.score]))], tokens: (values) => values.query, explained: (values, found) => [values.query, found[0].text],
  },
  relation: {
    route: "/relate", fields: () => [text, { name: "subject", word: "subject", short: true }, { name: "object", word: "object", short: true }],
    request: (values, words) => {
      const find = (name = "") => { const at = (values.text ?? "").indexOf(name); if (!name || at < 0) throw new Error(words.notFound.replace("{name}", name)); const start = [...values.text.slice(0, at)].length; return { start, end: start + [...name].length }; };
      return { inputs: { text: values.text, subject: find(values.subject), object: find(values.object) } };
    },
    examples: () => ({ en: [{ text: "Ada Lovelace was born in London.", subject: "Ada Lovelace", object: "London" }], ko: [{ text: "세종대왕은 한양에서 태어났다.", subject: "세종대왕", object: "한양" }] }),
    show: (found, _, words) => labels(found.answers[0], words), answer: (found) => found.answers[0],
  },
  tagging: {
    explained: (values) => values.text, route: "/ner", fields: () => [text], request: (values) => ({ inputs: values.text }), examples: () => NAMES,
    show: (found, values, words) => found.length ? [marked(values.text, found.map((one) => ({ ...one, note: `${one.entity_group} ${(100 * one.score).toFixed(0)}%` })))] : [element("p", {}, words.none), marked(values.text, [])],
  },
  parse: {
    route: "/parse", fields: () => [text], request: (values) => ({ inputs: values.text }), examples: () => NAMES,
    show: (found, _, words) => {
      const { words: parsed, tree } = found.answers[0];
      const rows = parsed.map((one) => [one.text, one.head === null ? "–" : one.head ? parsed[one.head - 1].text : words.root, one.relation ?? "–"]);
      return [arcs(parsed), element("p", { class: "hint" }, tree ? words.tree : words.noTree), table([words.word, words.head, words.relation], rows)];
    }, answer: (found) => found.answers[0],
  },
  span: {
    explained: (values) => [values.question, values.context], route: "/qa", fields: () => [{ name: "question", word: "question", short: true }, { name: "context", word: "context" }], request: (values) => ({ inputs: { question: values.question, context: values.context } }),
    examples: () => ({ en: [{ question: "Where is the library?", context: "The library is in the old town hall. It opens at nine, and closes at six." }], ko: [{ question: "도서관은 어디에 있나요?", context: "도서관은 옛 시청 건물에 있다. 아침 아홉 시에 열고 저녁 여섯 시에 닫는다." }] }),
    show: (found, values, words) => {
      const spans = found.n_best.slice(0, 2).map((one, i) => ({ ...one, kind: i ? "second" : "t1", note: `${i ? words.next : words.best} ${(100 * one.probability).toFixed(1)}%` }));
      const shown = [element("p", { class: "verdict" }, found.answer || words.noAnswer), marked(values.context, spans)];
      const none = element("p", { class: "hint" }, words.none2.replace("{p}", (100 * found.no_answer_probability).toFixed(1)));
      return [...shown, bars(found.n_best.map((one) => [one.answer, one.probability]), { best: !!found.answer }), none];
    }, answer: (found) => found, tokens: (values) => values.context,
  },
  choice: {
    route: "/choose", fields: () => [{ name: "context", word: "beginning", short: true }, { name: "choices", word: "choices" }], request: (values) => ({ inputs: { context: values.context, choices: lines(values.choices) } }),
    examples: () => ({ en: [{ context: "It began to rain, so she", choices: "opened her umbrella.\nate the library.\nwatered the garden." }], ko: [{ context: "비가 오기 시작해서 그는", choices: "우산을 폈다.\n도서관을 먹었다.\n정원에 물을 주었다." }] }),
    show: (found, values) => { const given = lines(values.choices); return [bars(Object.entries(found.answers[0].scores).map(([i, p]) => [given[+i], p]).sort((a, b) => b[1] - a[1]))]; },
    answer: (found) => found.answers[0], tokens: (values) => values.context,
  },
  mlm: {
    explained: (values) => values.text, route: "/fill_mask", fields: () => [{ name: "text", word: "masked", mask: true }], request: (values) => ({ inputs: values.text, parameters: { top_k: 8 } }),
    examples: (model) => ({ en: [{ text: `The ${model.mask_token} was cold.` }, { text: `She read a ${model.mask_token} in the ${model.mask_token}.` }], ko: [{ text: `오늘은 ${model.mask_token} 이 좋다.` }] }),
    show: (found, _, words) => (Array.isArray(found[0]) ? found : [found]).flatMap((mask, i) => [element("h3", {}, words.position.replace("{n}", i + 1)), bars(mask.map((one) => [one.token_str, one.score])), element("p", { class: "hint" }, mask[0].sequence)]),
  },
  pair: {
    route: "/next_sentence", fields: () => pair, request: (values) => ({ inputs: { first: values.first, second: values.second } }), examples: () => PAIRS,
    show: (found, _, words) => { const one = found.answers[0]; return [element("p", { class: "verdict" }, words.verdicts[one.verdict]), bars([[words.yes, one.yes], [words.no, 1 - one.yes]].sort((a, b) => b[1] - a[1]))]; }, answer: (found) => found.answers[0], tokens: (values) => values.first,
  },
  embed: similar, vectors: similar,
  search: {
    route: "/search", fields: () => [{ name: "query", word: "query", short: true }], request: (values) => ({ query: values.query }),
    examples: () => ({ en: [{ query: "Where is the library?" }], ko: [{ query: "도서관은 어디에 있나요?" }] }),
    show: (found, _, words) => {
      const said = "answer" in found ? [element("p", { class: "verdict" }, found.answer ? found.answer.text : words.noAnswer)] : [];
      const hits = found.hits.map((hit) => element("li", {}, element("strong", {}, [hit.title, hit.source].filter(Boolean).join(" · ") + (hit.line ? `:${hit.line}` : "")), snippet(hit)));
      return [...said, hits.length ? element("ol", { class: "hits" }, ...hits) : element("p", {}, words.none)];
    },
  },
};
