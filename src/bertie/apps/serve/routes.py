"""The table of routes: path, suitable models, body and handler. One row per route.

A route that models of several tasks answer goes to the first model of the server that has one of its `kinds`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, TypeAdapter

from bertie.apps.serve import explaining, generating, openai, own, pipelines, schemas, tei
from bertie.apps.serve.call import Call
from bertie.apps.serve.docs import ERRORS, JSON, Operation
from bertie.apps.serve.served import ANY_TASK, VECTORS_OUTPUT, Served

_LABEL_TASKS = ("sequence", "multilabel", "pattern", "rank", "relation", "regression")
ANY = ()


@dataclass(frozen=True)
class Route:
    """A route.

    kinds: suitable kinds of models (`Served.kinds`), the best first; none: any model. content: types of the answer.
    """

    path: str
    kinds: tuple[str, ...]
    body: type[BaseModel]
    work: Callable[[Call, Any], Awaitable[Any]]
    tag: str
    example: Any = None
    content: tuple[str, ...] = (JSON,)

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """The parser of the body."""
        return TypeAdapter(self.body)

    @property
    def operation(self) -> Operation:
        """What /docs says of it: the first line of the handler's docstring, and an example."""
        summary = (self.work.__doc__ or "").partition("\n")[0]
        return Operation(self.tag, summary, ERRORS, self.content, body=self.body, example=self.example)


TEI, OPENAI, COHERE = "Text Embeddings Inference", "OpenAI", "Cohere"
TGI = "Text Generation Inference"
PIPELINES, OWN = "Hugging Face pipelines", "Bertie"
TEXT_EXAMPLE = {"inputs": "The soup was cold."}
_PAIR_EXAMPLE = {"query": "Where is the library?", "texts": ["It is in the town hall.", "Soup is served hot."]}
COMPARED = {"source_sentence": "The soup was cold.", "sentences": ["The soup had cooled.", "It rains."]}
_QUESTION_EXAMPLE = {"question": "Where is the library?", "context": "The library is in the old town hall."}
CHOICE = {"context": "It began to rain, so she", "choices": ["took a coat.", "ate a pear."]}
_RELATION_EXAMPLE = {
    "text": "Ada lived in Paris.",
    "subject": {"start": 0, "end": 3},
    "object": {"start": 13, "end": 18},
}
STREAMED = (JSON, "text/event-stream")
FOLLOWING = {"first": "It began to rain.", "second": "She took a coat."}

RANKERS = ("rank", "regression", "choice")
VECTOR_KINDS = ("embed", VECTORS_OUTPUT)

ROUTES: tuple[Route, ...] = (
    Route("/embed", VECTOR_KINDS, schemas.EmbedBody, tei.embed, TEI, TEXT_EXAMPLE),
    Route("/embed_all", VECTOR_KINDS, schemas.EmbedAllBody, tei.embed_all, TEI, TEXT_EXAMPLE),
    Route("/similarity", VECTOR_KINDS, schemas.SimilarityBody, tei.similarity, TEI, {"inputs": COMPARED}),
    Route("/predict", _LABEL_TASKS, schemas.PredictBody, tei.predict, TEI, TEXT_EXAMPLE),
    Route("/rerank", RANKERS, schemas.RerankBody, tei.rerank, TEI, _PAIR_EXAMPLE),
    Route("/tokenize", ANY, schemas.TokenizeBody, tei.tokenize, TEI, TEXT_EXAMPLE),
    Route("/decode", ANY, schemas.DecodeBody, tei.decode, TEI, {"ids": [5, 6, 7]}),
    Route(
        "/v1/embeddings",
        VECTOR_KINDS,
        schemas.EmbeddingsBody,
        openai.embeddings,
        OPENAI,
        {"input": "The soup was cold."},
    ),
    Route(
        "/v1/rerank",
        RANKERS,
        schemas.RerankBody,
        tei.rerank,
        COHERE,
        {"query": _PAIR_EXAMPLE["query"], "documents": _PAIR_EXAMPLE["texts"], "top_n": 1},
    ),
    Route(
        "/classify",
        ("sequence", "multilabel", "pattern", "relation", "rank"),
        schemas.ClassifyBody,
        own.classify,
        OWN,
        {"input": ["The soup was cold."]},
    ),
    Route(
        "/text_classification",
        _LABEL_TASKS,
        schemas.PipelineBody,
        pipelines.text_classification,
        PIPELINES,
        TEXT_EXAMPLE,
    ),
    Route(
        "/ner",
        ("tagging",),
        schemas.TagBody,
        pipelines.token_classification,
        PIPELINES,
        {"inputs": "Ada lived in Paris."},
    ),
    Route(
        "/qa", ("span",), schemas.QuestionBody, pipelines.question_answering, PIPELINES, {"inputs": _QUESTION_EXAMPLE}
    ),
    Route(
        "/fill_mask", ("mlm",), schemas.PipelineBody, pipelines.fill_mask, PIPELINES, {"inputs": "The [MASK] was cold."}
    ),
    Route("/choose", ("choice",), schemas.ChooseBody, own.choose, OWN, {"inputs": CHOICE}),
    Route("/relate", ("relation",), schemas.RelateBody, own.relate, OWN, {"inputs": _RELATION_EXAMPLE}),
    Route("/generate", ("text2text",), schemas.GenerateBody, generating.generate, PIPELINES, TEXT_EXAMPLE, STREAMED),
    Route(
        "/generate_stream",
        ("text2text",),
        schemas.GenerateBody,
        generating.generate_stream,
        TGI,
        TEXT_EXAMPLE,
        STREAMED,
    ),
    Route("/parse", ("parse",), schemas.AnswerBody, own.answer, OWN, {"inputs": "Ada lived in Paris."}),
    Route(
        "/score",
        ("regression",),
        schemas.AnswerBody,
        own.answer,
        OWN,
        {"inputs": [["A first text.", "A second text."]]},
    ),
    Route("/next_sentence", ("pair",), schemas.NextSentenceBody, own.next_sentence, OWN, {"inputs": FOLLOWING}),
    Route("/explain", explaining.EXPLAINED_HEADS, schemas.ExplainBody, explaining.explain, OWN, TEXT_EXAMPLE),
    Route("/answer", (ANY_TASK,), schemas.AnswerBody, own.answer, OWN, TEXT_EXAMPLE),
)

PIPELINE = {
    **dict.fromkeys(("sequence", "multilabel", "pattern"), "/text_classification"),
    **{
        "text2text": "/generate",
        "rank": "/rerank",
        "regression": "/score",
        "relation": "/relate",
        "choice": "/choose",
        "parse": "/parse",
    },
    **{
        "tagging": "/ner",
        "span": "/qa",
        "mlm": "/fill_mask",
        "pair": "/next_sentence",
        "embed": "/embed",
        VECTORS_OUTPUT: "/embed",
    },
}
"""What POST / is for a model, by the first of its kinds; of another task /answer."""
BY_PATH = {route.path: route for route in ROUTES}


def pipeline_of(model: Served) -> Route:
    """Returns the row of a model's own pipeline: clients of Hugging Face's API send everything to one address."""
    return BY_PATH[PIPELINE.get(model.kinds[0], "/answer")]
