"""Bodies of requests, as the clients of other servers send them. Unknown keys at the top are ignored, as there."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

MOST_TEXT = 1 << 21  # characters of a text; the body's limit is usually met first
T = TypeVar("T")
Many = Annotated[list[T], Field(fail_fast=True)]
"""A list whose first fault is enough: of a million wrong values a message each would take gigabytes."""
Text = Annotated[str, Field(max_length=MOST_TEXT)]
TokenIds = Many[Annotated[int, Field(ge=0, lt=1 << 31, strict=True)]]
Side = Annotated[
    Literal["left", "right"], BeforeValidator(lambda side: side.lower() if isinstance(side, str) else side)
]
Row = str | Many[str] | dict[str, Any]


class Body(BaseModel):
    """What every body may say. model: which of the served models answers; left out: the first that can."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    model: str | None = None


class Limited(Body):
    """truncate: true cuts texts that are too long, false refuses them; null: the server's policy."""

    truncate: bool | None = None
    truncation_direction: Side = "right"


class EmbedBody(Limited):
    """Texts whose vectors are wanted. dimensions: of a model trained for fewer, the first so many."""

    inputs: Text | Many[Text | TokenIds]
    prompt_name: str | None = None
    normalize: bool | None = True
    dimensions: Annotated[int, Field(ge=1)] | None = None


class EmbedAllBody(Limited):
    """Texts whose token vectors are wanted. layer: 0 are the embeddings; negative numbers count from the last one."""

    inputs: Text | Many[Text | TokenIds]
    prompt_name: str | None = None
    layer: int = -1


class RerankBody(Limited):
    """A question and the texts to be put in order, as `texts` (Text Embeddings Inference) or `documents` (Cohere)."""

    query: Text
    texts: Many[Text] | None = None
    documents: Many[Text | dict[str, Any]] | None = None
    raw_scores: bool = False
    return_text: bool = False
    return_documents: bool = False
    top_n: Annotated[int, Field(ge=1)] | None = None


class PredictBody(Limited):
    """A text; a list of two texts, which is one pair; or a batch: lists of one or two texts."""

    inputs: Text | Many[Text] | Many[Many[Text]]
    raw_scores: bool = False


class ClassifyBody(Limited):
    """Texts, or pairs of texts, to be classified."""

    input: Text | Many[Text | Many[Text]]


class SimilarityInputs(BaseModel):
    """A sentence and those it is compared with."""

    source_sentence: Text
    sentences: Many[Text]


class SimilarityBody(Limited):
    """A sentence and those it is compared with."""

    inputs: SimilarityInputs


class TokenizeBody(Body):
    """Texts whose tokens are wanted."""

    inputs: Text | Many[Text]
    add_special_tokens: bool = True


class DecodeBody(Body):
    """Token ids of one text or of several."""

    ids: TokenIds | Many[TokenIds]
    skip_special_tokens: bool = True


class EmbeddingsBody(Body):
    """OpenAI's request for embeddings."""

    input: Text | TokenIds | Many[Text] | Many[TokenIds]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


class Parameters(BaseModel):
    """Options of a pipeline; one that is not known is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")

    top_k: Annotated[int, Field(ge=1, le=1000)] | None = None


class TagParameters(Parameters):
    """none: a record for each word; simple: for each entity."""

    aggregation_strategy: Literal["none", "simple"] = "simple"
    ignore_labels: Many[str] = ["O"]


Given = BeforeValidator(lambda parameters: parameters or {})


class PipelineBody(Limited):
    """Texts for a pipeline of transformers."""

    inputs: Text | Many[Text]
    parameters: Annotated[Parameters, Given] = Parameters()


class TagBody(PipelineBody):
    """Texts whose entities are wanted."""

    parameters: Annotated[TagParameters, Given] = TagParameters()


class Question(BaseModel):
    """A question and the text that may hold its answer."""

    question: Text
    context: Text


class QuestionBody(Limited):
    """A question and the text that may hold its answer, or several."""

    inputs: Question | Many[Question]
    parameters: Annotated[Parameters, Given] = Parameters()


class AnswerBody(Limited):
    """Rows as `bertie predict` reads them: a text, a list of two texts, or an object by column."""

    inputs: Row | Many[Row]


class Choices(BaseModel):
    """A context, and what may follow it."""

    context: Text
    choices: Annotated[Many[Text], Field(min_length=2)]


class ChooseBody(Limited):
    """A context and its choices, or several."""

    inputs: Choices | Many[Choices]


class Stretch(BaseModel):
    """Characters of a text, in code points; `end` is the first one after. type: what kind of name it is."""

    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=1)]
    type: str = ""


class Related(BaseModel):
    """A text with two names in it."""

    text: Text
    subject: Stretch
    object: Stretch


class RelateBody(Limited):
    """A text with the two names whose relation is wanted, or several."""

    inputs: Related | Many[Related]


class NextSentence(BaseModel):
    """Two texts."""

    first: Text
    second: Text


class NextSentenceBody(Limited):
    """Two texts, or several pairs."""

    inputs: NextSentence | Many[NextSentence]


class AnyBody(BaseModel):
    """Whatever the model's own pipeline takes; see the route of its task."""

    model_config = ConfigDict(extra="allow")
