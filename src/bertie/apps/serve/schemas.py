"""Bodies of requests, as clients of other servers send them. Unknown keys on the top level are ignored."""

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MOST_TEXT = 1 << 21  # characters of a text; the body's limit is usually met first
MOST_QUERY = 1_000  # characters of a question for an index, each word of which is looked up
MOST_WRITTEN, MOST_BEAMS = 512, 8  # tokens and beams of a generated text: others wait for it
_T = TypeVar("_T")
Many = Annotated[list[_T], Field(fail_fast=True)]
"""A list whose first fault is enough: of a million wrong values a message each would take gigabytes."""
_Text = Annotated[str, Field(max_length=MOST_TEXT)]
TokenIds = Many[Annotated[int, Field(ge=0, lt=1 << 31, strict=True)]]
Side = Annotated[
    Literal["left", "right"], BeforeValidator(lambda side: side.lower() if isinstance(side, str) else side)
]
InputRow = str | Many[str] | dict[str, Any]
ZERO_SHOT = {"candidates", "candidate_labels"}


class Keys(BaseModel):
    """Keys of an object. Null is as if a key were left out, also one that is not known: many clients send it so."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _omit_nulls(cls, keys: object) -> object:
        if not isinstance(keys, dict) or None not in keys.values():
            return keys
        required = {name for name, field in cls.model_fields.items() if field.is_required()}
        return {key: value for key, value in keys.items() if value is not None or key in required}


class Body(Keys):
    """Keys of every body. model: name of the served model; default: the first suitable one."""

    model: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_candidates(cls, body: object) -> object:
        """Raises an error for labels to choose from, which would be ignored as unknown keys."""
        for keys in (body, body.get("parameters")) if isinstance(body, dict) else ():
            if isinstance(keys, dict) and any(keys.get(name) is not None for name in ZERO_SHOT):
                message = "zero-shot classification is not served. Use `bertie predict --candidates`"
                raise PydanticCustomError("zero_shot", message)
        return body


class Limited(Body):
    """truncate: true truncates texts that are too long, false refuses them, null follows the server's policy."""

    truncate: bool | None = None
    truncation_direction: Side = "right"


class EmbedBody(Limited):
    """Texts to embed. dimensions: number of dimensions to keep, for a model that was trained for it."""

    inputs: _Text | Many[_Text | TokenIds]
    prompt_name: str | None = None
    normalize: bool = True
    dimensions: Annotated[int, Field(ge=1)] | None = None


class EmbedAllBody(Limited):
    """Texts whose tokens are embedded. layer: 0 is the embeddings; negative numbers count from the last layer."""

    inputs: _Text | Many[_Text | TokenIds]
    prompt_name: str | None = None
    layer: int = -1


class Document(Keys):
    """A text to rank. Other keys are ignored."""

    text: _Text


class RerankBody(Limited):
    """A query and the texts to rank, as `texts` (Text Embeddings Inference) or `documents` (Cohere)."""

    query: _Text
    texts: Many[_Text] | None = None
    documents: Many[_Text | Document] | None = None
    raw_scores: bool = False
    return_text: bool = False
    return_documents: bool = False
    top_n: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _check_texts(self) -> Self:
        """Raises an error unless exactly one of both keys has the texts."""
        if (self.texts is None) == (self.documents is None):
            raise PydanticCustomError("texts", "send the texts as `texts` or as `documents`, and not as both")
        return self


class PredictBody(Limited):
    """A text; a list of two texts, which is one pair; or a batch of lists of one or two texts."""

    inputs: _Text | Many[_Text] | Many[Many[_Text]]
    raw_scores: bool = False


class ClassifyBody(Limited):
    """Texts or pairs of texts to classify."""

    input: _Text | Many[_Text | Many[_Text]]


class ExplainBody(Body):
    """A text or a pair of texts. label: a label or masked word, by default the predicted one; word: of a tagger."""

    inputs: _Text | Annotated[list[_Text], Field(max_length=2, fail_fast=True)]
    label: str | None = None
    word: Annotated[int, Field(ge=1)] | None = None


class AttentionBody(Body):
    """A text or a pair of texts. layer, head: from 1; default: the head with the strongest links between words."""

    inputs: _Text | Annotated[list[_Text], Field(max_length=2, fail_fast=True)]
    layer: Annotated[int, Field(ge=1)] | None = None
    head: Annotated[int, Field(ge=1)] = 1


class SimilarityInputs(Keys):
    """A sentence and the sentences to compare it with."""

    source_sentence: _Text
    sentences: Many[_Text]


class SimilarityBody(Limited):
    """A sentence and the sentences to compare it with."""

    inputs: SimilarityInputs


class TokenizeBody(Body):
    """Texts to tokenize."""

    inputs: _Text | Many[_Text]
    add_special_tokens: bool = True


class DecodeBody(Body):
    """Token ids of one text or of several."""

    ids: TokenIds | Many[TokenIds]
    skip_special_tokens: bool = True


class EmbeddingsBody(Body):
    """OpenAI's request for embeddings."""

    input: _Text | TokenIds | Many[_Text] | Many[TokenIds]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


class Parameters(Keys):
    """Options of a pipeline. Unknown options are refused."""

    model_config = ConfigDict(extra="forbid")

    top_k: Annotated[int, Field(ge=1, le=1000)] | None = None


class TagParameters(Parameters):
    """none: one record per word; simple: one per entity."""

    aggregation_strategy: Literal["none", "simple"] = "simple"
    ignore_labels: Many[str] = ["O"]


class PipelineBody(Limited):
    """Texts for a pipeline of transformers."""

    inputs: _Text | Many[_Text]
    parameters: Parameters = Parameters()


class Writing(Keys):
    """Options of generation; by default as trained. Unknown options are refused.

    temperature, top_k, top_p: tokens are drawn, unless do_sample is false. details: clients send it; the last event of
    a stream always has them.
    """

    model_config = ConfigDict(extra="forbid")

    max_new_tokens: Annotated[int, Field(ge=1, le=MOST_WRITTEN)] | None = None
    num_beams: Annotated[int, Field(ge=1, le=MOST_BEAMS)] | None = None
    length_penalty: Annotated[float, Field(ge=-10, le=10)] | None = None
    do_sample: bool | None = None
    temperature: Annotated[float, Field(ge=0.01, le=100)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    details: bool = False


class GenerateBody(Limited):
    """Texts for which to generate a text. stream: one text, as server-sent events while it is generated."""

    inputs: _Text | Many[_Text]
    parameters: Writing = Writing()
    stream: bool = False


class TagBody(PipelineBody):
    """Texts in which to find entities."""

    parameters: TagParameters = TagParameters()


class Question(Keys):
    """A question and a context."""

    question: _Text
    context: _Text


class QuestionBody(Limited):
    """One or several questions with their contexts."""

    inputs: Question | Many[Question]
    parameters: Parameters = Parameters()


class AnswerBody(Limited):
    """Rows as `bertie predict` reads them: a text, a list of two texts, or an object by column.

    head: of a model of several tasks; by default all of them answer.
    """

    inputs: InputRow | Many[InputRow]
    head: str | None = None


class Choices(Keys):
    """A context and its choices."""

    context: _Text
    choices: Annotated[Many[_Text], Field(min_length=2)]


class ChooseBody(Limited):
    """One or several contexts with their choices."""

    inputs: Choices | Many[Choices]


class Stretch(Keys):
    """A range of characters, in code points; `end` is exclusive. type: the entity type."""

    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=1)]
    type: str = ""


class Related(Keys):
    """A text with two entities."""

    text: _Text
    subject: Stretch
    object: Stretch


class RelateBody(Limited):
    """One or several texts, each with two entities."""

    inputs: Related | Many[Related]


class NextSentence(Keys):
    """Two texts."""

    first: _Text
    second: _Text


class NextSentenceBody(Limited):
    """One or several pairs of texts."""

    inputs: NextSentence | Many[NextSentence]


class SearchBody(Body):
    """A question for an index. rerank, answer: whether the models served for it are used, or which one."""

    query: Annotated[str, Field(max_length=MOST_QUERY)]
    top: Annotated[int, Field(ge=1, le=100)] = 5
    index: str | None = None
    rerank: bool | str = True
    answer: bool | str = True


class AnyBody(Keys):
    """The body of the model's own pipeline; see the route of its task."""

    model_config = ConfigDict(extra="allow")
