"""The page of a word in several texts."""

from collections.abc import Mapping
from html import escape
from typing import Any

from bertie.platform import Chart, Html, Line, Report

MOST_PAIRS = 6  # with a line of their own
_MAX_WORDS = 60  # beside the word itself, in a picture


def render_contexts_page(results: Mapping[str, Any], model: str) -> Report:
    """Returns the page of what `contexts.words` found."""
    contexts, layers = results["contexts"], results["layers"]
    last = layers[-1]
    report = Report("A word in several texts", f"{model}: {', '.join(dict.fromkeys(one['word'] for one in contexts))}")
    report.tiles(
        [
            ("mean similarity", f"{last['mean_similarity']:z.3f}", f"cosine, layer {last['layer']}"),
            ("random words", f"{last['baseline']:z.3f}", f"{results['baseline']} words, layer {last['layer']}"),
            ("above random words", f"{last['adjusted']:+z.3f}", f"layer {last['layer']}"),
        ]
    )
    report.section("The texts")
    report.table(["number", "text"], [[number, _marked(one)] for number, one in enumerate(contexts, 1)])
    report.section(
        "Similarity by layer",
        "The cosine of the vectors of the word in two texts. Layer 0 is the output of the embeddings. The dashed line "
        "is the mean cosine of random different words of different texts, which is the level to compare with.",
    )
    report.chart(_lines(results))
    report.table(
        ["layer", "mean similarity", "random words", "difference"],
        [[one["layer"], one["mean_similarity"], one["baseline"], f"{one['adjusted']:+z.3f}"] for one in layers],
        stack=True,
    )
    report.section(
        "Where the vectors lie",
        "Two principal components of all words of the texts. Numbered dots are the word in each text.",
    )
    report.charts(
        _map(results, layer) for layer in sorted({0, len(layers) // 3, 2 * len(layers) // 3, len(layers) - 1})
    )
    report.section(f"Similarity of the texts in layer {last['layer']}")
    report.table(
        ["text", *map(str, range(1, len(contexts) + 1))],
        [[str(number), *(f"{x:z.3f}" for x in row)] for number, row in enumerate(last["similarity"], 1)],
    )
    return report.footer(docs="probe")


def render_contexts_section(results: Mapping[str, Any]) -> list[object]:
    """Returns the section of the model's card."""
    texts = [f"{place}. {one['text']} ({one['word']})" for place, one in enumerate(results["contexts"], 1)]
    rows = [
        (one["layer"], f"{one['mean_similarity']:z.3f}", f"{one['baseline']:z.3f}", f"{one['adjusted']:+z.3f}")
        for one in results["layers"]
    ]
    return ["\n".join(texts), (["layer", "mean similarity", "random words", "difference"], rows)]


def list_text_pairs(results: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Returns the pairs of texts, from 0, or none where there are more than MOST_PAIRS."""
    size = len(results["contexts"])
    all_pairs = [(i, j) for i in range(size) for j in range(i + 1, size)]
    return all_pairs if len(all_pairs) <= MOST_PAIRS else []


def _marked(context: Mapping[str, Any]) -> Html:
    text, start, end = context["text"], context["start"], context["end"]
    return Html(f"{escape(text[:start])}<b>{escape(text[start:end])}</b>{escape(text[end:])}")


def _lines(results: Mapping[str, Any]) -> str:
    layers = results["layers"]
    x = [one["layer"] for one in layers]
    lines = [
        Line(f"texts {i + 1} and {j + 1}", x, [one["similarity"][i][j] for one in layers])
        for i, j in list_text_pairs(results)
    ] or [Line("mean of the pairs", x, [one["mean_similarity"] for one in layers])]
    lines.append(Line("random words", x, [one["baseline"] for one in layers], colour=6, dashed=True))
    return Chart.lines(lines, x_label="layer", y_label="cosine")


def _map(results: Mapping[str, Any], layer: int) -> tuple[str, str]:
    one = results["layers"][layer]
    rows = [context["row"] for context in results["contexts"]]
    points_by_name = {str(number): (one["points"][row][0], one["points"][row][1]) for number, row in enumerate(rows, 1)}
    others = [(x, y, results["words"][row]) for row, (x, y) in enumerate(one["points"]) if row not in rows]
    caption = f"Layer {one['layer']}: {one['explained']:.0%} of the variance."
    return Chart.map(points_by_name, others[:_MAX_WORDS], title=f"words in layer {one['layer']}"), caption
