"""`bertie info` counts what is trained in addition to the model."""

import pytest

from bertie.api.describe import info


def test_a_discriminator_s_generator_is_counted() -> None:
    found = info("electra-small-discriminator").to_dict()["flops_per_token"]
    # Clark et al. 2020, table 6: 12 layers of 256, embeddings of 128; a generator of a quarter of it, 64.
    layers, width, embedding, vocabulary, length = 12, 256, 128, 30_522, 128

    def encoder(h: int) -> int:
        """24 h^2 of each layer's products, 4 h s of its attention; the embeddings' projection is not counted."""
        return layers * (24 * h * h + 4 * h * length)

    small = width // 4
    head = 0.15 * (2 * small * embedding + 2 * embedding * vocabulary)
    detector = 2 * width * width + 2 * width
    by_count = 3 * encoder(width) + 3 * detector + 3 * (encoder(small) + head) + head  # once more to draw tokens
    assert found["pretraining"] == pytest.approx(by_count, rel=1e-6)


def test_a_model_trained_alone_has_nothing_beside_it() -> None:
    found = info("bert-base").to_dict()["flops_per_token"]
    assert found["in addition, forward and backward"] == {}
    layers, h, length, vocabulary = 12, 768, 128, 30_522
    forward = 24 * layers * h * h + 4 * layers * h * length + 0.15 * (2 * h * h + 2 * h * vocabulary)
    assert found["pretraining"] == pytest.approx(3 * forward, rel=1e-6)
