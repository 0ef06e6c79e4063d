"""The base class of classifiers of texts: word vectors, or those of a pretrained encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, pad

from torchcaps._core.errors import check_count, check_range, input_error, shape_text
from torchcaps._core.types import Capsules
from torchcaps.models.recipes import TEXT, ZHAO, HasRecipes, Recipe
from torchcaps.models.tokens import TextEncoder

UNKNOWN = 1  # the word for all that are not in the vocabulary


class TextModel(HasRecipes, nn.Module):
    """Base class of classifiers of texts: token indices [b t], zero for padding, to one capsule for each class.

    vocabulary: the number of words. classes: the number of classes. dim: the size of word vectors. tune: train the word
    vectors too. dropout: the dropout probability of word vector components. word_dropout: the probability that a word
    is replaced by the unknown word in training. encoder: a pretrained network whose token vectors take the place of
    word vectors; then `dim` is its own, `word_dropout` sets vectors of tokens to zero, and the attribute
    `padding_token` is the encoder's. Texts of fewer words than the attribute `shortest` are padded.
    """

    reads = "texts"
    recipes: ClassVar[dict[str, Recipe]] = {"default": TEXT, "best": {**TEXT, "epochs": 16}, "paper": ZHAO}
    many_classes_recipe: ClassVar[Recipe] = {"loss": "cross-entropy", "epochs": 14, "images": 100_000}
    shortest = 1
    padding_token = 0
    decoder = None

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        dim: int = 50,
        tune: bool = True,
        dropout: float = 0.5,
        word_dropout: float = 0.0,
        encoder: TextEncoder | None = None,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        check_count(owner, "vocabulary", vocabulary, 2)
        check_count(owner, "dim", dim)
        for word, share in (("dropout", dropout), ("word_dropout", word_dropout)):
            check_range(owner, word, share, 0, 0.95)
        self.vocabulary = vocabulary
        self.classes = classes
        self.dropout = dropout
        self.word_dropout = word_dropout
        self.encoder = encoder
        if encoder is not None:
            check_range(owner, "vocabulary", vocabulary, 2, encoder.tokens)
            self.dim, self.padding_token = encoder.dim, encoder.padding
            return
        self.dim = dim
        self.words = nn.Embedding(vocabulary, dim, padding_idx=0)
        self.words.weight.requires_grad_(tune)

    if TYPE_CHECKING:

        def __call__(self, tokens: Tensor) -> Capsules: ...

    @property
    def readout(self) -> str:
        """The kind of the activations, a key of `losses.READOUTS`."""
        raise NotImplementedError

    def set_vectors(self, table: Float[Tensor, "n c"]) -> None:
        """Initialize the word vectors with a table [n c], one row for each word of the vocabulary."""
        if table.shape != self.words.weight.shape:
            expected = f"word vectors {shape_text(self.words.weight.shape)}"
            raise input_error(type(self).__name__, expected, shape_text(table.shape), "Make the model with this dim.")
        with torch.no_grad():
            self.words.weight.copy_(table)

    def features(self, tokens: Int[Tensor, "b t"] | Float[Tensor, "b t c"]) -> tuple[Tensor, Tensor]:
        """The word vectors [b c t] of tokens [b t], padded to at least `shortest` words, and the text lengths [b].

        Words after the end of a text are zero and masked, so that neither the amount of padding nor other texts of the
        batch change the result.
        """
        if not isinstance(self.encoder, nn.Identity):  # which reads features
            self._check_tokens(tokens)
        vectors, real = self._vectors(tokens)
        missing = max(0, self.shortest - vectors.shape[1])
        if torch.compiler.is_exporting():  # constant padding, which is enough for a text of any length
            missing = self.shortest + 1
        vectors, real = pad(vectors, (0, 0, 0, missing)), pad(real, (0, missing))
        places = torch.arange(1, real.shape[1] + 1, device=real.device)
        ends = (real * places).amax(1).clamp(min=self.shortest)
        return dropout(vectors, self.dropout, self.training).transpose(1, 2), ends

    def _vectors(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors [b t c] of tokens, and which of them are words of a text [b t]."""
        lost = None
        if self.training and self.word_dropout:
            lost = torch.rand(tokens.shape[:2], device=tokens.device) < self.word_dropout
        if self.encoder is None:
            real = tokens != 0
            tokens = tokens if lost is None else torch.where(lost & real, UNKNOWN, tokens)
            return self.words(tokens), real
        vectors = self.encoder(tokens)
        real = (vectors != 0).any(-1)
        return vectors if lost is None else vectors.masked_fill(lost.unsqueeze(-1), 0), real

    def _check_tokens(self, tokens: Tensor) -> None:
        if tokens.ndim != 2 or tokens.is_floating_point() or tokens.dtype == torch.bool:
            got = f"{shape_text(tokens.shape)} of {tokens.dtype}"
            raise input_error(
                type(self).__name__, "words [b t] by number", got, "Pass what a vocabulary's encode gives."
            )
