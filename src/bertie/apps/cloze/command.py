"""`bertie cloze`: questions about raw text, made without labels."""

from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie import platform
from bertie.apps import cloze as app
from bertie.apps.cli.shared import option
from bertie.platform import console


def cloze_command(
    corpus: Annotated[str, typer.Argument(help="Corpus folder of `bertie corpus`.", metavar="CORPUS")],
    output: Annotated[
        Path,
        option(
            "output",
            ".jsonl",
            ".txt",
            help="Questions to write: FILE.jsonl; FILE.txt: texts for pre-training, each question before its context.",
        ),
    ],
    rows: Annotated[int, typer.Option("--rows", min=1, help="Number of questions.")] = 100_000,
    context_words: Annotated[
        int, typer.Option("--context-words", help="Most words of a context. Each context has half of them or more.")
    ] = 130,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the questions.")] = 0,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Make cloze questions about a corpus, to practice question answering without labels.

    The answer is a name or a number of a sentence. The question has the other words of the sentence, some of them left
    out, and a question word. The context is the sentence with its neighbors. Words in capitals mark names, and
    particles mark Korean nouns.

    \b
    Examples:
      bertie cloze corpora/mine -o questions.jsonl
      bertie finetune MODEL --task span --train questions.jsonl -o runs/cloze max_length=224
      bertie finetune runs/cloze --data squad --data-dir squad -o runs/squad
      bertie cloze corpora/mine -o pairs.txt
    """

    platform.File(output).check_new(overwrite=overwrite)
    count = app.cloze.SentenceCount()
    questions = app.cloze.make_questions(
        bertie.Corpus.open(corpus), rows=rows, words=context_words, seed=seed, count=count
    )
    empty = f"{corpus} has no sentence of 6 words with a name or a number that occurs once in its context."
    form = app.cloze.as_document if output.suffix.lower() == ".txt" else app.cloze.format_question
    lines = map(form, console.track(questions, "questions", total=rows))
    written = platform.File(output).write_lines(lines, empty=lambda: empty)
    facts = {
        "file": str(output),
        "questions": written,
        "sentences_read": count.read,
        "unsuitable": count.unsuitable,
    }
    if console.verbosity.json:
        console.emit(facts)
        return
    console.show(f"{output}: {written:,} questions")
    if written < rows:
        console.warn(
            f"The corpus has only {written:,} suitable sentences of {count.read:,}; {rows:,} questions were asked for."
        )
