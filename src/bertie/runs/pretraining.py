"""Everything that a pre-training run needs, made and checked before its folder is created. pretrain.py calls it."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from bertie import objectives
from bertie.console import console
from bertie.errors import UsageError
from bertie.files import JsonObject
from bertie.folders import new_folder
from bertie.infer.perplexity import READ_AT
from bertie.models import families
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.count import forward_flops
from bertie.models.files import MODEL_FOLDER, hash_model_folder
from bertie.models.model import TorchModel
from bertie.models.saving import check_vocabulary, own_settings
from bertie.runs.config import PretrainConfig
from bertie.runs.domains import held_out_sentences
from bertie.runs.layout import MODEL
from bertie.runs.models import check_length, model_folder
from bertie.runs.planning import disk_bytes, warn_of_plan
from bertie.runs.run_data import RunData, is_folder, models_named, phases
from bertie.runs.weights import open_teacher
from bertie.settings import flatten
from bertie.text.tokenizer import Tokenizer
from bertie.train import precision
from bertie.train.schedule import warmup_warnings
from bertie.train.step_metrics import measure_batches

EXAMPLES = 3  # corrupted instances shown before training: a wrong corpus is seen here first
ON_VOCABULARY = ("mlm", "ltr", "span", "plm", "bilm", "distil")  # parts of a loss that ask the model's vocabulary head


@dataclass(frozen=True)
class PhaseFacts:
    """Tokens and operations of a step, the share of tokens predicted by the vocabulary head, and the operations of
    other modules than the model."""

    tokens: int
    predicted: float
    flops: float
    extra: Mapping[str, float]


class PreparedRun:
    """Everything that a run needs, made before its folder is created, so that bad input leaves no files."""

    def __init__(self, config: PretrainConfig) -> None:
        self.config, self.start = config, model_folder(config.model)
        device = precision.choose_device(config.train.device)
        self.objective = objectives.build_objective(config.objectives).load_dependencies(
            partial(open_teacher, device=device)
        )
        if not config.tokenizer and not self.is_folder:
            raise UsageError(
                "tokenizer is missing. Pass --tokenizer FOLDER: a folder of `bertie tokenizer "
                "train`, or any folder with tokenizer.json or vocab.txt."
            )
        learned = ("mlm", "ltr", "plm", "bilm")
        if config.pseudo_perplexity and all(config.objectives.get(name) is None for name in learned):
            raise UsageError(f"pseudo_perplexity needs a language model: one of the objectives {', '.join(learned)}.")
        if config.pseudo_perplexity and not self.is_folder:
            raise UsageError(f"pseudo_perplexity needs a trained model to start from, but {config.model} is a preset.")
        self.tokenizer = Tokenizer.load(model_folder(config.tokenizer) if config.tokenizer else self.start)
        self.shape = self._shape()
        for warning in warmup_warnings(config.optim, config.train.steps):
            console.warn(warning)
        self.data = RunData(config, self.tokenizer)
        if (size := self.data.feature_size) is not None:
            self._check_vectors(size)
        if config.pseudo_perplexity:  # better now than when the training is done
            for folder, ids in self.data.folders.values():
                held_out_sentences(folder, ids, config.pseudo_perplexity)

    @cached_property
    def identity(self) -> JsonObject:
        """The fingerprint of the run: all settings, and the content of the files in them."""
        return flatten(self.config.model_dump(mode="json")) | self.contents

    @cached_property
    def contents(self) -> dict[str, object]:
        """The inputs of the run by setting: hashes of corpora, tokenizer, the model that it continues from, a
        teacher."""
        models = {
            name: hash_model_folder(model_folder(model))
            for name, model in models_named(self.config).items()
            if is_folder(model)
        }
        return {"corpus": self.data.fingerprint, "tokenizer": self.tokenizer.fingerprint, **models}

    def _shape(self) -> EncoderConfig:
        config = self.config
        if self.is_folder:
            if config.model_overrides:
                raise UsageError(
                    f"model_overrides change the architecture of a preset, but {config.model} is a model "
                    "folder with weights. Set model_overrides=null to continue from it."
                )
            shape = families.config(self.start)
            check_vocabulary(self.tokenizer, shape, Path(config.model))
        else:
            preset = families.config(config.model)
            fields = read_with(preset, self.tokenizer, said=families.family(config.model).keys)
            shape = families.changed_config(preset, {**fields, **config.model_overrides})
            check_vocabulary(self.tokenizer, shape, Path(config.tokenizer))
        check_length(max(phase.max_length for phase in phases(config)), shape.max_length, config.model)
        return shape

    def _check_vectors(self, size: int) -> None:
        """Raises UsageError for a model that reads other vectors than those of the table, of `size` numbers.

        Also for a model that has too few positions for the rows.
        """
        reads = self.shape.feature_size
        if reads != size:
            settings = ("visual_embedding_dim", "frame_size", "visual_feat_dim")
            setting = next((one for one in settings if self.shape.get(one) is not None), settings[0])
            positions = self.shape.get("visual_pos_dim")
            value = size - (positions if isinstance(positions, int) else 0)
            raise UsageError(
                f"The feature vectors of the table have {size:,} numbers, and {self.config.model} reads "
                f"{'only texts' if reads is None else f'vectors of {reads:,}'}. Set model_overrides.{setting}={value}."
            )
        most, longest = self.shape.max_together, self.data.longest
        if most is not None and longest > most:
            raise UsageError(
                f"Texts and feature vectors of the table need up to {longest:,} positions, and {self.config.model} has "
                f"{most:,}. Raise features.patch_size, lower features.picture_size or max_length, or remove long rows."
            )

    @property
    def is_folder(self) -> bool:
        """Whether the run continues from a model folder."""
        return is_folder(self.start)

    def model(self) -> TorchModel:
        """Returns the model with random weights of a preset, or those of a folder, and the objective's heads."""
        heads, seed = self.objective.heads, self.config.train.seed
        if self.is_folder:
            model, report = families.load(self.start, heads=heads, seed=seed)
            model.check_trainable(self.start)
            console.say(f"{self.config.model}: {report}")
        else:
            family = families.family(self.config.model).model_type
            model = families.build(self.shape, heads=heads, seed=seed, variant=family)
        model.tokenizer = self.tokenizer
        self.objective.prepare(model, seed)
        for saved in self.objective.models_to_save(model).values():
            if saved.variant is not None:  # raises now what saving would after the last step
                saved.variant.architecture(tuple(saved.heads), saved.public)
        return model

    def measured_start(self) -> TorchModel | None:
        """Returns the model that the run started from, or None where its language-model head was untrained."""
        _, report = families.load(self.start, heads=self.objective.heads, seed=self.config.train.seed)
        heads = tuple(f"heads.{name}." for name in READ_AT)
        return None if any(name.startswith(heads) for name in report.fresh) else self.model()

    def save(self, model: TorchModel, run: Path) -> None:
        """Writes RUN/model, and other models of an objective."""
        for name, saved in self.objective.models_to_save(model).items():
            with new_folder(run / name, MODEL_FOLDER, keep_strangers=True) as unfinished:
                families.save(saved, unfinished, tokenizer=self.tokenizer)

    def outline(self, model: TorchModel, folder: Path) -> None:
        """Writes RUN/model without its weights."""
        families.save(self.objective.models_to_save(model)[MODEL], folder, tokenizer=self.tokenizer, weights=False)

    def validate(self, model: TorchModel, held: Mapping[str, list[Batch]]) -> dict[str, float]:
        """Returns the metrics of the held-out documents, and of each corpus where there are several."""
        figures = measure_batches(model, self.objective, [batch for batches in held.values() for batch in batches])
        if len(held) > 1:
            for name, batches in held.items():
                figures |= {
                    f"{key}/{name}": value for key, value in measure_batches(model, self.objective, batches).items()
                }
        return figures

    def plan(self, model: TorchModel) -> JsonObject:
        """Returns sizes and costs.

        shape: with model_overrides, layers and hidden size. flops: of all steps, forward and backward, without padding;
        flops_beside: those of other modules than the model.
        """
        config, data = self.config, self.data
        device = precision.choose_device(config.train.device)
        phases = [self._phase_plan(number) for number in range(len(data.phases))]
        corpora = data.facts()
        instances = sum(corpus["instances_per_epoch"] for corpus in corpora)
        samples = sum(phase.steps * phase.batch_size for phase in data.phases)
        first, own = phases[0], own_settings(model)
        extra = [phase.pop("flops_beside") for phase in phases]
        shape = f"layers: {self.shape.num_hidden_layers}, hidden size: {self.shape.hidden_size}"
        planned = {
            "model": config.model,
            **({"shape": shape} if config.model_overrides else {}),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "objective": self.objective.name,
            "documents": sum(corpus["documents"] for corpus in corpora),
            "instances_per_epoch": instances,
            "tokens_per_epoch": sum(
                corpus["tokens_per_epoch"]  # of a table of vectors, an estimate
                or round(corpus["instances_per_epoch"] * first["tokens_per_step"] / first["sequences_per_step"])
                for corpus in corpora
            ),
            "steps": config.train.steps,
            "epochs": corpora[0]["epochs"] if len(corpora) == 1 else round(samples / instances, 2),
            "sequences_per_step": first["sequences_per_step"],
            "tokens_per_step": first["tokens_per_step"],
            "flops": float(f"{sum(phase['flops'] for phase in phases):.3g}"),
            "flops_beside": {name: float(f"{sum(each[name] for each in extra):.3g}") for name in extra[0]},
            "device": str(device),
            "precision": str(precision.choose_dtype(config.train.precision, device)).removeprefix("torch."),
            **({"own_settings": own} if own else {}),
            **({"corpora": corpora} if len(corpora) > 1 else {}),
            **({"phases": phases} if len(phases) > 1 else {}),
        }
        planned["disk_bytes"] = disk_bytes(planned, config)
        tokens = sum(shards.num_values for shards in data.shards.values())
        return {**planned, "warnings": [*data.notes, *warn_of_plan(planned, config, tokens)]}

    def examples(self) -> list[str]:
        """Returns the first instances as input of the model, with the expected predictions."""
        return self.data.sources[0].examples(EXAMPLES)

    def facts(self, number: int) -> "PhaseFacts":
        """Returns the measures of a phase, from its first batch."""
        first = self.data.sources[number].batches(0)
        tokens = sum(batch.tokens for batch in first)
        counts = [self.objective.counts(batch) for batch in first]
        shares = {part: sum(count[part] for count in counts) / tokens for part in counts[0]}
        length = sum(int((batch.layout.mask().sum(1) ** 2).sum()) for batch in first) / tokens
        predicted = sum(shares.get(part, 0) for part in ON_VOCABULARY)
        flops = 3 * sum(forward_flops(self.shape, length=length, predicted=predicted).values())
        extra = self.objective.extra_cost(self.shape, length=length, shares=shares)
        return PhaseFacts(
            tokens,
            predicted,
            (flops + sum(extra.values())) * tokens,
            {name: one * tokens for name, one in extra.items()},
        )

    def _phase_plan(self, number: int) -> JsonObject:
        phase, facts = self.data.phases[number], self.facts(number)
        return {
            "steps": phase.steps,
            "max_length": phase.max_length,
            "sequences_per_step": phase.batch_size,
            "tokens_per_step": facts.tokens,
            "flops": facts.flops * phase.steps,
            "flops_beside": {name: each * phase.steps for name, each in facts.extra.items()},
        }


def read_with(preset: EncoderConfig, tokenizer: Tokenizer, *, said: Container[str]) -> dict[str, object]:
    """Returns the fields of a preset that depend on the tokenizer: rows, ids of special tokens, segments.

    said: the fields in the family's config.json; no others are changed. Where positions are counted from the pad
    token's id, the preset's number of positions after it is kept.
    """
    pad, sep, eos = (tokenizer.special_id(role) for role in ("pad", "sep", "eos"))
    pad = 0 if pad is None else pad  # the first GPT has none: what is padding nobody reads
    end = sep if eos is None else eos
    segments = 1 + max(max(frame.text_types + sum(frame.gap_types, ())) for frame in tokenizer.frames)
    fields: dict[str, object] = {"vocab_size": tokenizer.vocab_size, "pad_token_id": pad, "decoder_start_token_id": pad}
    if preset.position_offset:
        fields["max_position_embeddings"] = preset.max_length + pad + 1
    if preset.type_vocab_size > 1:
        fields["type_vocab_size"] = max(preset.type_vocab_size, segments)
    if end is not None:
        fields |= {"sep_token_id": end if sep is None else sep, "eos_token_id": end}
    elif preset.eos_token_id is not None:
        raise UsageError(
            "This family ends a text with a special token, but the tokenizer has none (eos or sep). Train "
            "one that has it: bertie tokenizer train CORPUS --for gpt2 -o FOLDER"
        )
    return {name: value for name, value in fields.items() if name in said}
