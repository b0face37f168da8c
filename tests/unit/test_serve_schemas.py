"""The bodies of requests: null for a key that may be left out is as if it were left out, in every schema."""

from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from annotated_types import MinLen
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from bertie.apps.serve import schemas
from serving import live, make_models

pytest.importorskip("starlette")
SCHEMAS = [kind for kind in vars(schemas).values() if isinstance(kind, type) and issubclass(kind, BaseModel)]
SCHEMAS.remove(BaseModel)


def value_of(kind: Any) -> Any:
    """A value of an annotation."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Annotated, Union, UnionType):
        return value_of(parts[0])
    if origin is list:
        return [value_of(parts[0])]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: value(field) for name, field in kind.model_fields.items() if field.is_required()}
    return {str: "a", int: 1}[kind]


def value(field: FieldInfo) -> Any:
    """A value of a field."""
    least = [one.min_length for one in field.metadata if isinstance(one, MinLen)]
    return value_of(field.annotation) * least[0] if least else value_of(field.annotation)


@pytest.mark.promise("any-json")
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.__name__)
def test_null_is_as_if_left_out(schema):
    body = value_of(schema)
    if schema is schemas.RerankBody:
        body["texts"] = ["a"]
    without = schema.model_validate(body)
    for name, field in schema.model_fields.items():
        if field.is_required():
            with pytest.raises(ValidationError):
                schema.model_validate({**body, name: None})
        elif name not in body:
            read = schema.model_validate({**body, name: None})
            assert (read, read.model_fields_set) == (without, without.model_fields_set), name


def test_null_in_a_request(tmp_path):
    with live(make_models(tmp_path, ["embed", "sequence", "tagging"])) as server:
        body = {"input": "ab", "encoding_format": None, "dimensions": None, "user": None, "model": None}
        assert server.ok("/v1/embeddings", body)["data"][0]["embedding"]
        body = {"inputs": "ab", "parameters": {"top_k": None, "function_to_apply": None}, "truncation_direction": None}
        body |= {"candidate_labels": None}
        assert server.ok("/text_classification", body)
        for parameters in (None, {"ignore_labels": None, "aggregation_strategy": None}):
            assert isinstance(server.ok("/ner", {"inputs": "ab cd", "parameters": parameters}), list)
