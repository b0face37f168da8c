"""BERT as it was published: the sizes of its models, and the names in its files."""

import parity


def test_sizes() -> None:
    """As `transformers` counts the published models, pooler included."""
    assert parity.parameters("bert-tiny") == 4_385_920
    assert parity.parameters("bert-mini") == 11_170_560
    assert parity.parameters("bert-small") == 28_763_648
    assert parity.parameters("bert-medium") == 41_373_184
    assert parity.parameters("bert-base") == 109_482_240
    assert parity.parameters("bert-large") == 335_141_888
    assert parity.parameters("bert-base-cased") == 108_310_272
    assert parity.parameters("bert-base-multilingual-cased") == 177_853_440
    assert parity.parameters("bert-base-multilingual-uncased") == 167_356_416
    assert parity.parameters("bert-base-chinese") == 102_267_648


def test_published_names() -> None:
    """google-bert/bert-base-uncased: its file still has TensorFlow's gamma and beta, and both pre-training heads."""

    def norm(name: str) -> dict[str, tuple[int, ...]]:
        return {f"{name}.gamma": (768,), f"{name}.beta": (768,)}

    layer = {
        **{k: v for p in ("query", "key", "value") for k, v in parity.both(f"attention.self.{p}", 768, 768).items()},
        **parity.both("attention.output.dense", 768, 768),
        **norm("attention.output.LayerNorm"),
        **parity.both("intermediate.dense", 3072, 768),
        **parity.both("output.dense", 768, 3072),
        **norm("output.LayerNorm"),
    }
    recorded = {
        "bert.embeddings.word_embeddings.weight": (30_522, 768),
        "bert.embeddings.position_embeddings.weight": (512, 768),
        "bert.embeddings.token_type_embeddings.weight": (2, 768),
        **norm("bert.embeddings.LayerNorm"),
        **{f"bert.encoder.layer.{i}.{name}": shape for i in range(12) for name, shape in layer.items()},
        **parity.both("bert.pooler.dense", 768, 768),
        "cls.predictions.bias": (30_522,),
        **parity.both("cls.predictions.transform.dense", 768, 768),
        **norm("cls.predictions.transform.LayerNorm"),
        "cls.predictions.decoder.weight": (30_522, 768),
        **parity.both("cls.seq_relationship", 2, 768),
    }
    parity.published("bert", "bert-base", ("mlm", "pair"), recorded, pooler=True)
