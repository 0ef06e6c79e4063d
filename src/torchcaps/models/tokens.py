"""Pretrained encoders of texts: tokens in, a vector for each token out."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from torchcaps._core.errors import input_error, shape_text
from torchcaps.models.frozen import Pretrained


class TextEncoder(Pretrained):
    """A pretrained network as an encoder of texts: tokens [b t] to vectors [b t c], zero after the end of a text.

    The vectors of special tokens at both ends of a text ([CLS], [SEP]) are kept, as those of ordinary tokens. It is
    frozen until `tune` makes it learn with the rest.

    network: a network of transformers, called with input_ids and attention_mask; its answer has last_hidden_state
    [b t c]. source: where it came from, as `load_encoder` takes it. dim: the size of the vectors. tokens: the number of
    tokens that the network knows. padding: the token for padding. vocabulary: the tokenizer of the network, a
    `data.Vocabulary`; None if it is stored elsewhere, as in a run folder.
    """

    def __init__(
        self, network: nn.Module, source: str, *, dim: int, tokens: int, padding: int = 0, vocabulary: Any = None
    ) -> None:
        super().__init__(network, source)
        self.dim, self.tokens, self.padding, self.vocabulary = dim, tokens, padding, vocabulary

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t c"]:
        places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
        ends = ((tokens != self.padding) * places).amax(1, keepdim=True)
        real = places <= ends.clamp(min=1)  # without any token, attention would be 0 / 0
        found = self.network(input_ids=tokens, attention_mask=real.long())
        vectors = getattr(found, "last_hidden_state", None)
        if not isinstance(vectors, Tensor) or vectors.shape != (*tokens.shape, self.dim):
            got = shape_text(vectors.shape) if isinstance(vectors, Tensor) else f"a {type(found).__name__}"
            expected = f"a vector for each token, ({tokens.shape[0]}, {tokens.shape[1]}, {self.dim})"
            raise input_error(f"encoder {self.source}", expected, got, "Choose one like bert, roberta or distilbert.")
        return vectors.masked_fill(~(places <= ends).unsqueeze(-1), 0)
