"""`Model`: a model that is ready to use, whatever engine runs it, and what one can do with it.

`load` opens it by the function of the command line and of the server, so all of them give the same numbers.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

from bertie.api.embedding import (
    embed_texts,
    list_texts,
    readable_texts,
    vectors_of_tokens,
    write_vectors,
    write_vectors_of_tokens,
)
from bertie.api.handle import ModelHandle, Where
from bertie.api.options import (
    EmbedOptions,
    Output,
    PredictOptions,
    RankOptions,
    ReceivePrediction,
    SimilarityOptions,
    WriteOptions,
)
from bertie.api.predicting import (
    RecordTarget,
    TextSource,
    pass_predictions,
    predictions,
    traffic_log,
    write_predictions,
)
from bertie.api.results import Explanation, Predictions, Ranked, Written
from bertie.console import console
from bertie.errors import UsageError, WrongValue, arguments
from bertie.infer.candidates import choose_from, fill_in
from bertie.infer.embed import Vector, make_embedder
from bertie.infer.engine import Engine, Ensemble
from bertie.infer.fill import MaskPrediction
from bertie.infer.layers import TokenVectors
from bertie.infer.predict import Predictor
from bertie.infer.texts import check_text, check_top
from bertie.infer.traffic import Traffic
from bertie.io.memory import RowsInput
from bertie.registry import Later
from bertie.tasks import Prediction, task_of
from bertie.tasks.capabilities import Embeds
from bertie.tasks.embed import compare_vectors as alike
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from bertie.api.options import ReadingOptions
    from bertie.api.scores import Scores
    from bertie.api.writing import Writer
    from bertie.infer.pairs import PairVerdict
    from bertie.infer.perplexity import Perplexity
    from bertie.models.model import TorchModel

WHERE = {
    "torch_dtype": "precision",
    "dtype": "precision",
    "model_name_or_path": "model",
    "folder": "model",
    "repo_id": "name",
}
THEIRS: dict[str, str] = {  # arguments of sentence-transformers and transformers
    "normalize_embeddings": "normalize",
    "prompt_name": "prompt",
    "max_seq_length": "max_length",
    "candidate_labels": "candidates",
    "hypothesis_template": "hypothesis",
    "multi_label": "multi",
    "num_beams": "beams",
    "do_sample": "sample",
    "max_tokens": "max_new_tokens",
    "top_k": "top",
    "repo_id": "name",
    "commit_message": "message",
    **WHERE,
}


class Model(ModelHandle):
    """A model that is ready to use, whatever engine runs it. `load` opens one, `Run.model` is one.

    Example:
        >>> model = bertie.load("starter-en")
        >>> model.fill_mask("I read a [MASK] in the library.", top=1)[0][0].token
        'book'
        >>> model.can
        ('embed', 'similarity', 'fill_mask', 'perplexity', 'next_sentence')
    """

    def like(self, model: "Model | str | PathLike[str]") -> "Model":
        """Returns another model, which is opened as this one was.

        Example:
            >>> model.like("runs/other").where == model.where
            True
        """
        where = self.where
        return usable(model, device=where.device, precision=where.precision, engine=where.engine)

    @overload
    def predict(
        self,
        texts: RowsInput,
        *,
        output: None = None,
        ensemble: Sequence["Model | str | PathLike[str]"] = (),
        **options: Unpack[PredictOptions],
    ) -> Predictions: ...
    @overload
    def predict(
        self,
        texts: RowsInput,
        *,
        output: Output | ReceivePrediction,
        ensemble: Sequence["Model | str | PathLike[str]"] = (),
        **options: Unpack[PredictOptions],
    ) -> Written: ...
    @arguments(**THEIRS)
    def predict(
        self,
        texts: RowsInput,
        *,
        text: str | Sequence[str] = (),
        candidates: Sequence[str] | None = None,
        hypothesis: str | None = None,
        multi: bool = False,
        pattern: str = "",
        words: Mapping[str, str] | None = None,
        demonstrations: RowsInput | None = None,
        shots: int | None = None,
        calibrate_prompt: bool = False,
        ensemble: Sequence["Model | str | PathLike[str]"] = (),
        head: str = "",
        threshold: float | None = None,
        abstain: float | None = None,
        max_length: int | None = None,
        too_long: TooLong | None = None,
        columns: Sequence[str] = (),
        encoding: str = "utf-8",
        format: str = "",
        output: Output | ReceivePrediction | None = None,
        only_answers: bool = False,
        excel: bool = False,
        output_encoding: str = "utf-8",
        overwrite: bool = False,
        log: str | Path | Traffic | None = None,
    ) -> Predictions | Written:
        """Predicts labels for texts.

        Args:
            texts: Texts, or tuples of texts for tasks on pairs; or rows with columns: a DataFrame, an Arrow table, a
                data set, dicts, or the path of a file.
            text: Column of the text, or a template; two for a pair. Default: as in training, or recognized.
            candidates: Labels that the model was not trained on (zero-shot classification).
            hypothesis: With candidates, a sentence with {} for the label: "This text is about {}."
            multi: With candidates, whether each is judged separately, so that several can apply.
            pattern: A text with [MASK], for a masked language model or one that reads from left to right, with
                `words`: "It was [MASK]."
            words: The word of each label at the mask: {"good": "great", "bad": "terrible"}.
            demonstrations: Labeled rows in any form, as for `evaluate`, that a causal model reads before each text.
            shots: Number of demonstrations of each label, drawn from these rows. Default: all rows.
            calibrate_prompt: Whether what the model says to an empty text is subtracted (Zhao et al. 2021).
            ensemble: Other models of the task. The mean of the logits decides.
            head: The head of a model of several tasks. Default: all of them.
            threshold: Probability from which on a label is predicted. Default: as chosen in training.
            abstain: Probability below which a text gets no label, but a reason. 0: never. Default: as in training.
            max_length: Maximum number of tokens of a text. Default: as in training.
            too_long: Handling of longer texts: truncate, window or error. Default: as in training.
            columns: Column names of a file without a header line.
            encoding: Text encoding of a file.
            format: Format of a file. Default: by its suffix.
            output: File to write while the rows are read, which may be more than memory holds: .jsonl, .csv, .tsv,
                .xlsx or .parquet; .json is an object of answers by id. A stream gets JSON lines. A function is called
                with the texts of each row and its prediction.
            only_answers: With output, whether to omit the columns of the rows.
            excel: With output, whether to write .csv or .tsv as Excel does.
            output_encoding: Text encoding of the output.
            overwrite: Whether to replace the output.
            log: File to add counts of texts and answers to, without any text, for `bertie drift`; or what counts them.

        Returns:
            One `Prediction` per text: label, probability and the probabilities of all labels; `to_pandas()` has the
            columns of the rows too. The prediction of a text that is missing (None, NaN) or empty has an `error`
            instead, and a warning tells how many there are. With output, what was written.

        Raises:
            DataError: No text can be read, or one is a pair where the model reads single texts, or the reverse.
            UsageError: The model has no task head, or options exclude each other.

        Example:
            >>> answers = model.predict(["a quiet, lovely film", "the soup was cold"])
            >>> answers.labels
            ['good', 'bad']
            >>> answers.probabilities.shape
            (2, 2)
            >>> model.predict(reviews, text="review").to_pandas().columns.tolist()
            ['review', 'stars', 'label', 'probability', 'scores.bad', 'scores.good']
        """
        if candidates is None and (hypothesis is not None or multi):
            raise UsageError("`hypothesis` and `multi` need `candidates`.")
        source = TextSource.of(texts, text, columns, encoding, format)
        if candidates is None:
            prompt = _prompt_of(pattern, words, demonstrations, shots, calibrate_prompt, text)
            predictor = self._answering(ensemble, head, prompt, max_length, too_long).deciding(threshold, abstain)
        else:
            if too_long:
                raise UsageError("`too_long` has no effect with `candidates`, which truncates texts. Omit `too_long`.")
            others = (("ensemble", ensemble), ("pattern", pattern or words), ("head", head))
            for name, value in (*others, ("threshold", threshold is not None), ("abstain", abstain is not None)):
                if value:
                    raise UsageError(f"`{name}` does not work with `candidates`. Omit one of them.")
            predictor = choose_from(
                self.runner, candidates, self._tokenizer, hypothesis=hypothesis, multi=multi, max_length=max_length
            )
        different = {"candidates": candidates, "pattern": pattern, "ensemble": ensemble, "head": head}
        with traffic_log(self.folder, log, [name for name, value in different.items() if value]) as traffic:
            if output is None:
                return predictions(predictor, source, traffic)
            if callable(output):
                return pass_predictions(predictor, source, output, traffic)
            target = RecordTarget.of(output, only_answers, excel, output_encoding, overwrite)
            return write_predictions(predictor, source, target, traffic)

    def _answering(
        self,
        ensemble: Sequence["Model | str | PathLike[str]"],
        head: str,
        prompt: "partial[Predictor] | None",
        max_length: int | None,
        too_long: TooLong | None,
    ) -> Predictor:
        """Returns what predicts labels: the head of the model, several models, or the words of a pattern."""
        if prompt is not None:
            for name, value in (("ensemble", ensemble), ("head", head)):
                if value:
                    raise UsageError(f"`{name}` does not work with `pattern`. Omit one of them.")
            return prompt(self.runner, tokenizer=self._tokenizer, max_length=max_length, too_long=too_long)
        self.check("predict")
        if not ensemble:
            return self.predictor(max_length=max_length, too_long=too_long, head=head)
        models = [self, *map(self.like, ensemble)]
        runner = Ensemble([one.runner for one in models], [one._tokenizer for one in models])
        return Predictor(runner, self._tokenizer, max_length=max_length, too_long=too_long, head=head)

    @arguments(**THEIRS)
    def evaluate(
        self,
        examples: RowsInput | None = None,
        *,
        data: str = "",
        data_dir: str | Path | None = None,
        split: str = "dev",
        text: str | Sequence[str] = (),
        label: str = "",
        label_names: Mapping[str, str] | None = None,
        weight: str = "",
        positive: str = "",
        ensemble: Sequence["Model | str | PathLike[str]"] = (),
        against: "Model | str | PathLike[str] | None" = None,
        perturb: Sequence[str] = (),
        head: str = "",
        pattern: str = "",
        words: Mapping[str, str] | None = None,
        demonstrations: RowsInput | None = None,
        shots: int | None = None,
        calibrate_prompt: bool = False,
        threshold: float | None = None,
        abstain: float | None = None,
        max_length: int | None = None,
        too_long: TooLong | None = None,
        columns: Sequence[str] = (),
        encoding: str = "utf-8",
        format: str = "",
        label_separator: str = "",
        output: str | Path | None = None,
        report: str | Path | None = None,
        overwrite: bool = False,
    ) -> "Scores":
        """Computes the metrics of the model on labeled examples.

        Args:
            examples: Labeled examples: the path of a file (csv, tsv, jsonl, parquet ...), a DataFrame, an Arrow table,
                a data set, dicts, tuples (text, label), or a tuple of two lists (texts, labels).
            data: A published data set, instead of `examples`.
            data_dir: Folder of the files of `data`.
            split: Split of `data`.
            text: Column of the text, or a template; two for a pair. Default: as in training, or recognized.
            label: Column of the label. Default: as in training, or recognized.
            label_names: Names for the labels of the examples: {"0": "negative"}.
            weight: Column of the weight of a row in the metrics. Default: all weigh 1.
            positive: Label of a classification whose F1 is the main metric.
            ensemble: Other models of the task. The mean of the logits decides.
            against: A second model: whether the difference is significant.
            perturb: Also measures changed texts: typos, spacing, lowercase, uppercase, punctuation, contrast.
            head: The head of a model of several tasks.
            pattern: As for `predict`.
            words: As for `predict`.
            demonstrations: As for `predict`.
            shots: As for `predict`.
            calibrate_prompt: As for `predict`.
            threshold: As for `predict`.
            abstain: As for `predict`. The metrics are then those of the rows with an answer.
            max_length: Maximum number of tokens of a text. Default: as in training.
            too_long: Handling of longer texts: truncate, window or error. Default: as in training.
            columns: Column names of a file without a header line.
            encoding: Text encoding of a file.
            format: Format of a file. Default: by its suffix.
            label_separator: What separates several labels in a cell. Default: as in training.
            output: JSON file of the metrics to write.
            report: HTML page to write: confusion matrix, subgroups, worst predictions.
            overwrite: Whether to replace the files.

        Returns:
            Every metric with its 95% interval, as `bertie evaluate --json` prints them.

        Raises:
            DataError: There is no labeled example.
            UsageError: Both or neither of examples and data are given, or the model has no task head.

        Example:
            >>> scores = model.evaluate(reviews, text="review", label="stars")
            >>> scores["accuracy"], scores.interval("accuracy")
            (1.0, (1.0, 1.0))
        """
        from bertie.api.evaluating import LabeledRows, Measures, measured_scores

        rows = LabeledRows(
            TextSource.of("" if examples is None else examples, text, columns, encoding, format),
            data,
            None if data_dir is None else Path(data_dir),
            split,
            label,
            label_names or {},
            label_separator,
            weight,
        )
        prompt = _prompt_of(pattern, words, demonstrations, shots, calibrate_prompt, text, label, label_names)
        predictor = self._answering(ensemble, head, prompt, max_length, too_long).deciding(threshold, abstain, positive)
        if (against is not None or perturb) and predictor.abstains:
            what = "against" if against is not None else "perturb"
            raise UsageError(f"`{what}` compares the answers to all rows, and this model abstains. Pass `abstain=0`.")
        second = None if against is None else self.like(against)
        measures = Measures(
            positive,
            None if second is None else second._answering((), head, prompt, max_length, too_long),
            perturb,
            second=""
            if second is None
            else str(against if isinstance(against, str | PathLike) else second.folder or ""),
            output=None if output is None else Path(output),
            report=None if report is None else Path(report),
            name=str(self.folder or self),
            overwrite=overwrite,
        )
        return measured_scores(predictor, rows, measures)

    @overload
    def embed(
        self, texts: RowsInput, *, tokens: Literal[False] = False, output: None = None, **options: Unpack[EmbedOptions]
    ) -> Vector: ...
    @overload
    def embed(
        self, texts: RowsInput, *, tokens: Literal[True], output: None = None, **options: Unpack[EmbedOptions]
    ) -> list[TokenVectors | None]: ...
    @overload
    def embed(
        self, texts: RowsInput, *, output: Output, tokens: bool = False, **options: Unpack[EmbedOptions]
    ) -> Written: ...
    @arguments(**THEIRS)
    def embed(
        self,
        texts: RowsInput,
        *,
        tokens: bool = False,
        from_layers: str | Sequence[int] = "",
        text: str | Sequence[str] = (),
        prompt: str | None = None,
        prefix: str | None = None,
        pooling: str | Sequence[str] | None = None,
        normalize: bool = False,
        truncate_dim: int | None = None,
        max_length: int | None = None,
        columns: Sequence[str] = (),
        encoding: str = "utf-8",
        format: str = "",
        output: Output | None = None,
        only_answers: bool = False,
        excel: bool = False,
        output_encoding: str = "utf-8",
        overwrite: bool = False,
    ) -> Vector | list[TokenVectors | None] | Written:
        """Computes a vector for each text, or for each of its tokens.

        Args:
            texts: The texts; or rows with columns: a DataFrame, an Arrow table, a data set, dicts, or the path of a
                file.
            tokens: Whether to return the vectors of the tokens.
            from_layers: With tokens: "all", or layer numbers; 0 is the embeddings. Default: the last layer.
            text: Column of the text, or a template. Default: recognized.
            prompt: Name of a prompt in the model folder.
            prefix: Text to put before every text: "query: ".
            pooling: mean, cls, max, mean_sqrt_len, weighted_mean, last, or several. Default: as trained.
            normalize: Whether to scale every vector to length 1.
            truncate_dim: Number of dimensions to keep, from the first.
            max_length: Maximum number of tokens of a text. Default: as in training.
            columns: Column names of a file without a header line.
            encoding: Text encoding of a file.
            format: Format of a file. Default: by its suffix.
            output: File to write while the rows are read, which may be more than memory holds: .npy, .jsonl, .parquet,
                .csv, .tsv or .xlsx; with tokens .npz, .safetensors or .parquet. A stream gets JSON lines.
            only_answers: With output, whether to omit the columns of the rows.
            excel: With output, whether to write .csv or .tsv as Excel does.
            output_encoding: Text encoding of the output.
            overwrite: Whether to replace the output.

        Returns:
            (N, W) float32, one row per text; with tokens, a `TokenVectors` per text. Of a text that is missing (None,
            NaN) or empty, the row is NaN, or None with tokens, and a warning tells how many there are. With output,
            what was written.

        Raises:
            DataError: No text can be read.
            UsageError: There is no such layer, layers without tokens, or options of texts with tokens.

        Example:
            >>> model.embed(["a dog", "a puppy"], normalize=True).shape
            (2, 384)
            >>> model.embed(["a dog"], tokens=True)[0].tokens
            ['[CLS]', 'a', 'dog', '[SEP]']
        """
        numbers = from_layers if isinstance(from_layers, str) else [*from_layers]
        if numbers and not tokens:
            raise UsageError("`from_layers` chooses vectors of tokens. Pass `tokens=True`, or omit `from_layers`.")
        pooled: dict[str, object] = {"prompt": prompt, "prefix": prefix, "pooling": pooling, "normalize": normalize}
        pooled["truncate_dim"] = truncate_dim
        if tokens and (names := [name for name, value in pooled.items() if value not in (None, False)]):
            excluded = ", ".join(f"`{name}`" for name in names)
            raise UsageError(f"`tokens` excludes {excluded}: vectors of tokens are not pooled. Pass one or the other.")
        source = TextSource.of(texts, text, columns, encoding, format)
        predictor = self.embedder(
            max_length=max_length,
            prompt=prompt,
            prefix=prefix,
            pooling=pooling,
            normalize=normalize,
            truncate_dim=truncate_dim,
        )
        if output is None and tokens:
            return vectors_of_tokens(predictor, list_texts(predictor, source), numbers)
        if output is None:
            return embed_texts(predictor, list_texts(predictor, source))
        target = RecordTarget.of(output, only_answers, excel, output_encoding, overwrite)
        if tokens:
            return write_vectors_of_tokens(predictor, source, target, numbers)
        return write_vectors(predictor, source, target)

    def embedder(self, **options: Unpack[SimilarityOptions]) -> Predictor:
        """Returns what computes vectors for rows of a stream, with the options of `embed`.

        Example:
            >>> embedder = model.embedder(normalize=True)
            >>> [len(answer.label) for answer in embedder.predict(["a dog"])]
            [384]
        """
        return make_embedder(self.runner, self._tokenizer, **options)

    @arguments(*SimilarityOptions.__annotations__, **THEIRS)
    def similarity(
        self, first: Iterable[object], second: Iterable[object], **options: Unpack[SimilarityOptions]
    ) -> Vector:
        """Computes the similarity of each text of `first` to each text of `second`.

        Args:
            first: A texts.
            second: B texts.
            **options: Options of `embed`: prompt, prefix, pooling, normalize, truncate_dim, max_length.

        Returns:
            (A, B) float32: cosines, or what the folder names. Distances are negative, so a higher number is more
            similar.

        Example:
            >>> model.similarity(["a dog"], ["a puppy", "a tax"]).shape
            (1, 2)
        """
        predictor = self.embedder(**options)
        task, a_AH, b_BH = (
            predictor.task,
            embed_texts(predictor, first, "first"),
            embed_texts(predictor, second, "second"),
        )
        return alike(a_AH, b_BH, task.similarity if isinstance(task, Embeds) else "cosine")

    @arguments(*RankOptions.__annotations__, **THEIRS)
    def rank(
        self,
        query: str,
        passages: Iterable[object],
        *,
        top: int | None = None,
        **options: Unpack[RankOptions],
    ) -> list[Ranked]:
        """Ranks passages by relevance to a query.

        A cross-encoder reads the query and a passage together. A model of sentence vectors compares their vectors.

        Args:
            query: The query.
            passages: The passages.
            top: Number of passages to return. Default: all.
            **options: head, too_long and max_length, as for `predict`; or options of `embed`.

        Returns:
            The passages, best first. Equal scores keep the order of the input. A passage that is missing (None, NaN)
            or empty is the last, with the score NaN and a warning.

        Raises:
            UsageError: The model gives neither scores nor vectors, or top is negative.

        Example:
            >>> model = bertie.load("runs/vectors")
            >>> best, *others = model.rank("rain", ["It was written in the rain.", "Note 1 is short."])
            >>> best.index in (0, 1), best.score >= others[0].score
            (True, True)
        """
        check_text(query, "query")
        check_top(top)
        read = readable_texts(passages, "passages")
        filled = [number for number, text in enumerate(read) if text is not None]
        texts = [text or "" for text in read]
        if isinstance(task_of(self.runner.facts), Embeds):
            rest = cast("SimilarityOptions", options)
            some = self.similarity([query], [texts[number] for number in filled], **rest)[0].tolist()
        else:
            self.check("rank")
            predictor = self.predictor(**cast("ReadingOptions", options))
            answers = predictor.predict([(query, texts[number]) for number in filled])
            some = [_score(answer, predictor.labels) for answer in answers]
        scores = dict.fromkeys(range(len(texts)), math.nan) | dict(zip(filled, some, strict=True))
        order = sorted(scores, key=lambda index: -scores[index] if scores[index] == scores[index] else math.inf)
        return [Ranked(index, scores[index], texts[index]) for index in order[:top]]

    @arguments(top_k="top", **WHERE)
    def fill_mask(self, text: str, *, top: int = 5, max_length: int | None = None) -> list[list[MaskPrediction]]:
        """Predicts masked tokens.

        Args:
            text: A text with one or more mask tokens.
            top: Number of predictions per mask.
            max_length: Maximum number of tokens of the text.

        Returns:
            For each mask, the most probable tokens, best first.

        Raises:
            DataError: The text has no mask.
            UsageError: The model has no masked-LM head.

        Example:
            >>> model = bertie.load("starter-en")
            >>> [mask[0].token for mask in model.fill_mask("She drank a cup of [MASK].", top=3)]
            ['water']
        """
        self.check("fill_mask")
        return self.predictor(max_length=max_length).fill_mask(text, top=top)

    @arguments(*WriteOptions.__annotations__, **THEIRS)
    def write(self, texts: Iterable[object], **options: Unpack[WriteOptions]) -> list[str | None]:
        """Generates a text for each text.

        Args:
            texts: The texts. A fine-tuned model reads them in the template of its training.
            **options: max_new_tokens, beams (1 is greedy), length_penalty, max_length; sample (draws each token at
                random) with temperature, top_k, top_p and seed. Default: as trained.

        Returns:
            The generated texts; None for a text that is missing (None, NaN) or empty, with a warning.

        Raises:
            DataError: No text can be read.
            UsageError: The model generates no text, or an option has no effect.

        Example:
            >>> model = bertie.load("writer")
            >>> len(model.write(["ab"], beams=2, max_new_tokens=5))
            1
        """
        read, writer = readable_texts(texts), self.writer(**options)
        generated = iter(writer.write([text for text in read if text is not None]))
        for note in writer.notes:
            console.warn(note)
        return [None if text is None else next(generated) for text in read]

    @arguments(*WriteOptions.__annotations__, **THEIRS)
    def writer(self, **options: Unpack[WriteOptions]) -> "Writer":
        """Returns what generates text word by word, `for word in model.writer()(text)`, with the options of `write`.

        Example:
            >>> model = bertie.load("writer")
            >>> text = "".join(word for word in model.writer(max_new_tokens=5)("ab"))
        """
        from bertie.api.writing import Writer

        self.check("write")
        return Writer.of(self.module, **options)

    @arguments(**THEIRS)
    def perplexity(
        self,
        texts: RowsInput,
        *,
        text: str | Sequence[str] = (),
        limit: int | None = None,
        max_length: int | None = None,
        columns: Sequence[str] = (),
        encoding: str = "utf-8",
        format: str = "",
    ) -> "Perplexity":
        """Computes the perplexity of texts, by whatever language model it is.

        GPT predicts each token from those before it, and ELMo from either side: the mean of both. BERT and XLNet
        predict each token from all others (Salazar et al. 2020), so their pseudo-perplexity is lower.

        Args:
            texts: The texts; or rows with columns, or the path of a file. They may be a stream.
            text: Column of the text, or a template. Default: recognized.
            limit: Maximum number of texts to read.
            max_length: Longer texts are left out. Default: the maximum of the model.
            columns: Column names of a file without a header line.
            encoding: Text encoding of a file.
            format: Format of a file. Default: by its suffix.

        Returns:
            per_word, per_token, counts, and the head that predicted.

        Raises:
            DataError: No text can be scored.
            UsageError: The model has no language-model head, or a decoder.

        Example:
            >>> model = bertie.load("starter-en")
            >>> good, bad = (model.perplexity([text]) for text in ("It sat on the mat.", "Mat the on sat it."))
            >>> good.per_word < bad.per_word
            True
        """
        from bertie.api.evaluating import perplexity_of

        source = TextSource.of(texts, text, columns, encoding, format)
        self.check("perplexity")
        return perplexity_of(self.runner, self.tokenizer, source, limit, max_length)

    @arguments(**THEIRS)
    def next_sentence(self, first: str, second: str, *, max_length: int | None = None) -> "PairVerdict":
        """Predicts whether one text follows another, or whether both are in order, by the head of pre-training.

        A language model without such a head answers by how much the first text tells of the second: `gain`.

        Args:
            first: The first text.
            second: The second text.
            max_length: Maximum number of tokens of both.

        Returns:
            The verdict and its probability.

        Raises:
            DataError: A text is empty, or the second is too long.
            UsageError: The model has neither head.

        Example:
            >>> model = bertie.load("runs/tiny")
            >>> model.next_sentence("Note 1 is short.", "It was written in the rain.").verdict in ("follows", "random")
            True
        """
        from bertie.infer.pairs import PairHead

        self.check("next_sentence")
        predictor = self.predictor(max_length=max_length)
        head = PairHead("nsp") if self.folder is None else PairHead.of(self.folder)
        (verdict,) = head.judge(self.runner, predictor.tokenizer, [(first, second)], max_length=predictor.max_length)
        return verdict

    @arguments(**THEIRS)
    def explain(
        self,
        text: str | Sequence[str],
        *,
        method: str = "ig",
        label: str = "",
        word: int | None = None,
        max_length: int | None = None,
    ) -> Explanation:
        """Shows which words of a text a prediction rests on.

        Args:
            text: A text, or a pair of texts.
            method: ig (integrated gradients, whose values add up to the change of the logit), gradient or occlusion.
            label: Label or masked word to explain. Default: the prediction.
            word: For a tagger: number of the word. Default: the first entity.
            max_length: Maximum number of tokens. Default: of the model.

        Returns:
            The words with their values.

        Raises:
            DataError: The text has no words.
            UsageError: The model has no head that can be explained, or the label is unknown.

        Example:
            >>> explanation = model.explain("the soup was cold")
            >>> explanation.about
            'label bad'
            >>> explanation.to_pandas().columns.tolist()
            ['word', 'value']
        """
        texts = (text,) if isinstance(text, str) else tuple(text)
        explain = Later[Callable[..., dict[str, Any]]]("bertie.apps.explain.api", "explain_prediction").found()
        facts = explain(self.module, texts, method=method, label=label, word=word, max_length=max_length)
        words = tuple((one["text"], one["value"]) for one in facts["words"])
        return Explanation(
            facts["explained"], facts["method"], words, facts["value"], facts["baseline"], facts["faithfulness"], facts
        )

    @arguments(**THEIRS)
    def compress(
        self, calibration: Iterable[object], *, bits: int = 8, embeddings: int = 8, force: bool = False
    ) -> "Model":
        """Returns a copy of the model with weights of 8 or 4 bits. `bertie compress` has more ways.

        Args:
            calibration: Representative texts. Up to half of them calibrate, and the others measure the vectors.
            bits: 8, or 4, with which the files are smaller and computation is not faster.
            embeddings: With 4 bits, bits of the word embeddings: 8 or 4.
            force: Whether to return a model that misses the quality threshold.

        Raises:
            DataError: There are too few texts, or the model misses the quality threshold.
            UsageError: The weights are quantized already, or cannot be.

        Example:
            >>> small = bertie.load("runs/other").compress(texts, force=True)
            >>> small.labels
            ('bad', 'good')
        """
        quantize = Later[Callable[..., "TorchModel"]]("bertie.compression.gate", "quantize_module").found()
        texts = [text for text in readable_texts(calibration, "calibration") if text is not None]
        module = quantize(deepcopy(self.module), texts, bits=bits, embeddings=embeddings, force=force)
        return Model(module, self.tokenizer)

    @arguments(**THEIRS)
    def export(
        self,
        output: str | Path,
        *,
        to: str = "onnx",
        int8: bool = False,
        texts: Iterable[object] | None = None,
        force: bool = False,
        overwrite: bool = False,
    ) -> Path:
        """Writes the model as a graph for other programs, and returns its folder, which `load` opens too.

        Before it is written, the graph and the model predict texts: the predictions must be equal.

        Args:
            output: Folder to write.
            to: Target format: onnx.
            int8: Whether to add a graph with 8-bit weights.
            texts: Representative texts for the comparison. Default: Python's documentation.
            force: Whether to write a graph that misses the quality threshold.
            overwrite: Whether to replace an earlier output of Bertie.

        Raises:
            DataError: The graph misses the quality threshold.
            UsageError: The format is unknown, or the model has no graph.

        Example:
            >>> folder = bertie.load("runs/other").export("out/other-onnx", texts=texts, force=True)
            >>> bertie.load(folder).engine
            'onnx'
        """
        export = Later[Callable[..., object]]("bertie.apps.export.api", "write_graph").found()
        chosen = None if texts is None else [text for text in readable_texts(texts) if text is not None]
        options = {"to": to, "int8": int8, "texts": chosen, "force": force, "overwrite": overwrite}
        export(self.module, self.folder, Path(output), **options)
        return Path(output)


def _score(answer: Prediction, labels: Sequence[str]) -> float:
    """Returns a number, or the probability of the second of two labels."""
    return answer.label if isinstance(answer.label, float) else answer.label_probabilities[labels[-1]]


@arguments(**WHERE)
def load(
    model: str | PathLike[str],
    device: str = "auto",
    precision: str = "fp32",
    engine: str = "auto",
) -> Model:
    """Opens a model for use, as the command line and the server do.

    Args:
        model: Name or folder of a model, a run or a checkpoint, or an exported ONNX graph. A run that has not finished
            gives its best weights so far (select=best), or its newest checkpoint.
        device: cpu, cuda, cuda:1, mps or auto, the fastest.
        precision: fp32, bf16 (may change the third digit) or auto, the faster one here.
        engine: torch, native or auto, the faster one here.

    Returns:
        The model.

    Raises:
        DataError: Files are missing or damaged, or vocabulary and weights belong to different models.
        UsageError: There is no such model, or an option is unknown or impossible for it.

    Example:
        >>> model = bertie.load("runs/reviews", device="cpu", engine="torch")
        >>> model.labels, model.task
        (('bad', 'good'), 'sequence')
    """
    return Model.open(fspath(model), Where(device, precision, engine))


def usable(model: object, *, device: str = "auto", precision: str = "fp32", engine: str = "auto") -> Model:
    """Returns a model that is open already, or opens a name or a folder.

    Raises UsageError for another value, and for a device, a precision or an engine of a model that is open.
    """
    if isinstance(model, str | PathLike):
        return load(Path(model) if isinstance(model, PathLike) else model, device, precision, engine)
    if not isinstance(model, Model):
        if not (isinstance(model, Engine) or hasattr(model, "encoder")):
            raise WrongValue(f"model is {model!r:.60}; a name, a folder or what bertie.load returns was expected.")
        model = Model(model)  # type: ignore[arg-type]  # a module in torch, or an engine
    if Where(device, precision, engine) not in (Where(), model.where):
        raise UsageError(
            f"{model!r} is open already. Pass device, precision and engine to bertie.load, or pass the folder here."
        )
    return model


def _prompt_of(
    pattern: str,
    words: Mapping[str, str] | None,
    demonstrations: RowsInput | None,
    shots: int | None,
    calibrate_prompt: bool,
    text: str | Sequence[str],
    label: str = "",
    label_names: Mapping[str, str] | None = None,
) -> "partial[Predictor] | None":
    """Returns `fill_in` with a pattern, None without one. Demonstrations, which may be a stream, are read here, once.

    text, label, label_names: how they are read.
    """
    if demonstrations is None and shots is not None:
        raise UsageError("`shots` draws from `demonstrations`. Pass both, or omit `shots`.")
    if not pattern and not words:
        if demonstrations is not None or calibrate_prompt:
            raise UsageError("`demonstrations` and `calibrate_prompt` need `pattern` and `words`.")
        return None
    if not pattern or not words:
        raise UsageError("Pass `pattern='It was [MASK].'` together with `words=good=great,bad=terrible`.")
    from bertie.api.evaluating import LabeledRows, demonstrations_of

    source = TextSource.of(() if demonstrations is None else demonstrations, text, (), "utf-8", "")
    rows = LabeledRows(source, label=label, label_names=label_names or {})
    examples = () if demonstrations is None else demonstrations_of(rows, shots)
    return partial(fill_in, pattern=pattern, words=words, demonstrations=examples, calibrate_prompt=calibrate_prompt)
