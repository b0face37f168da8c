"""ELMo's vectors of words: what it was published for. Peters et al. 2018, arXiv:1802.05365."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bertie.errors import WrongModel
from bertie.models.elmo import ElmoEncoder
from bertie.models.model import TorchModel
from bertie.nn.characters import character_ids
from bertie.nn.layout import Packed


def word_vectors(
    model: TorchModel, sentences: Sequence[Sequence[str]], *, layers: bool = False, batch_size: int = 32
) -> list[Tensor]:
    """Returns a vector for every word of every sentence: the weighted sum (words, H), or with `layers` each layer (L +
    1, words, H).

    Sentences are lists of words. Sentence boundaries are added and removed. Raises UsageError for a model of another
    family.
    """
    encoder = model.encoder
    if not isinstance(encoder, ElmoEncoder):
        raise WrongModel("Only ELMo has vectors of words; other families read subwords.")
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))  # alike in length, little padding
    vectors: dict[int, Tensor] = {}
    device, training = model.device, encoder.training
    encoder.eval()
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        marked = [["<S>", *sentences[i], "</S>"] for i in chosen]
        characters = character_ids(
            [word for words in marked for word in words], length=encoder.config.max_characters_per_token
        )
        lengths = [len(words) for words in marked]
        with torch.inference_mode():
            output = encoder(characters.to(device), layout=Packed.from_lengths(torch.tensor(lengths)).to(device))
        states = torch.stack(output.hidden_states) if layers else output.last_hidden_state[None]
        for i, part in zip(chosen, states.split(lengths, 1), strict=True):
            vectors[i] = part[:, 1:-1] if layers else part[0, 1:-1]
    encoder.train(training)
    return [vectors[i] for i in range(len(sentences))]
