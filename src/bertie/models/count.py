"""What a config costs, counted without building it: parameters by part, bytes, operations. Imports no torch.

L layers · h hidden size · s tokens a sequence · p share of positions with a prediction · V vocabulary
"""

from bertie.models.config import EncoderConfig


def parameters(config: EncoderConfig) -> dict[str, int]:
    """Parameters of the encoder by part; those of shared layers count once."""
    h, i = config.hidden_size, config.intermediate_size
    e = config.embedding_size or h
    layer = 4 * (h * h + h) + (h * i + i) + (i * h + h) + 2 * 2 * h
    layers = config.num_hidden_layers
    if config.num_hidden_groups is not None:
        layers = config.num_hidden_groups * config.inner_group_num
    projected = e != h or config.project_embeddings
    return {
        "word embeddings": config.vocab_size * e,
        "position embeddings": config.max_position_embeddings * e,
        "segment embeddings": config.type_vocab_size * e,
        "embedding norm": 2 * e,
        **({"embedding projection": e * h + h} if projected else {}),
        "layers": layers * layer,
        **({"final norm": 2 * h} if config.norm == "pre" else {}),
        **({"pooler": h * h + h} if config.pooler else {}),
    }


def forward_flops(config: EncoderConfig, *, length: float, predicted: float = 0.0) -> dict[str, float]:
    """Floating-point operations of a forward pass per real token, by part; training is three times as many.

    length: tokens a sequence, averaged over tokens; predicted: share of positions the masked-LM head runs at. With
    i = 4 h it is 24 L h^2 + 4 L h s + p (2 h^2 + 2 h V).
    """
    h, rounds = config.hidden_size, config.num_hidden_layers * config.inner_group_num
    e = config.embedding_size or h
    return {
        "projections": 2 * rounds * 4 * h * h,
        "feed-forward": 2 * rounds * 2 * h * config.intermediate_size,
        "attention": 4 * rounds * h * length,
        "masked-LM head": predicted * (2 * h * e + 2 * e * config.vocab_size),
    }
