"""Text capsules: Zhao et al. 2018, "Investigating Capsule Networks with Dynamic Routing for Text Classification".

words -> n-gram convolution -> primary capsules -> convolutional capsules -> class capsules, and a class for noise.
Model A uses n-grams of one length; model B uses three lengths and averages the poses of its branches.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from torchcaps._core.errors import check_choice, check_count, input_error
from torchcaps._core.types import Capsules, Step
from torchcaps.functional import length
from torchcaps.layers import RoutedLayer
from torchcaps.models.evidence import WordEvidence, with_evidence
from torchcaps.models.ngrams import Branch
from torchcaps.models.recipes import (
    TEXT_CAPSULES,
    TEXT_CAPSULES_BEST,
    TEXT_ENCODER,
    ZHAO,
    ZHAO_CODE,
    Recipe,
    with_options,
)
from torchcaps.models.textmodel import TextModel
from torchcaps.models.tokens import TextEncoder


class TextCapsules(TextModel):
    """Capsules for texts.

    vocabulary, classes, dim, tune, dropout, word_dropout, encoder: see `TextModel`. ngrams: the lengths of n-grams, one
    branch for each. filters: channels of the n-gram convolution (B of the paper). stride: of the n-gram convolution.
    padding: pad texts so that the first and the last word occur at every position of an n-gram. capsules, capsule_dim:
    the number of primary capsules for each n-gram, and their pose size (C, d). squash: of primary capsules, and of
    dynamic and uniform routing; a name in `SQUASHES`. window_capsules, window: the number of convolutional capsules,
    and of n-grams that they see (D, K2; by default 16 and 3); window=0 leaves that layer out. votes: "shared" or "full"
    matrices. vote_bias: add a learned bias to votes. noise: add a class that collects background, which is not part of
    the output. amendment: weight children by their activations; True by default for dynamic and uniform routing.
    leaky, sampling: see `Routing`. word_evidence: words and pairs of words also speak for classes by themselves, see
    `WordEvidence`; never beside an encoder. routing and further arguments: passed to all routed layers.
    """

    recipes: ClassVar[dict[str, Recipe]] = {"default": TEXT_CAPSULES, "best": TEXT_CAPSULES_BEST}
    # Votes are scaled for couplings of one over the number of classes, so that agreements are large from the start.
    many_classes_recipe: ClassVar[Recipe] = with_options(TextModel.many_classes_recipe, "sharpness=0.1")
    encoder_recipe: ClassVar[Recipe] = TEXT_ENCODER

    @classmethod
    def recipe(cls, preset: str, routing: str | None) -> Recipe:
        recipe = super().recipe(preset, routing)
        left_out = []
        if routing in ("attention", "uniform"):  # one pass: there is no last iteration
            left_out.append("gradients")
        if routing not in (None, "dynamic", "uniform"):  # they weight children by activations, or cannot
            left_out.append("amendment")
        if "option" in recipe:
            recipe["option"] = tuple(text for text in recipe["option"] if text.partition("=")[0] not in left_out)
        return recipe

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        ngrams: tuple[int, ...] = (3,),
        filters: int = 32,
        capsules: int = 32,
        capsule_dim: int = 16,
        window_capsules: int | None = None,
        window: int = 3,
        stride: int = 1,
        padding: bool = False,
        squash: str = "quadratic",
        votes: str = "shared",
        vote_bias: bool = True,
        noise: bool = True,
        leaky: bool = True,
        amendment: bool | None = None,
        sampling: float = 1.0,
        word_evidence: bool = False,
        routing: str = "dynamic",
        dim: int = 50,
        tune: bool = True,
        dropout: float = 0.4,
        word_dropout: float = 0.0,
        encoder: TextEncoder | None = None,
        **options: Any,
    ) -> None:
        words: dict[str, Any] = {"dim": dim, "tune": tune, "dropout": dropout, "word_dropout": word_dropout}
        super().__init__(vocabulary, classes, **words, encoder=encoder)
        owner = type(self).__name__
        ngrams = (ngrams,) if isinstance(ngrams, int) else tuple(ngrams)
        for ngram in ngrams:
            check_count(owner, "ngrams", ngram)
        if not ngrams:
            raise input_error(owner, "lengths of n-grams", "none", "Give ngrams like [3,4,5].")
        check_count(owner, "window", window, 0)
        if window_capsules is not None and not window:
            raise input_error(owner, "no window_capsules with window=0", window_capsules, "Drop it, or give window.")
        window_capsules = 16 if window_capsules is None else window_capsules
        sizes = {"filters": filters, "capsules": capsules, "window_capsules": window_capsules}
        for word, size in {**sizes, "capsule_dim": capsule_dim}.items():
            check_count(owner, word, size)
        if "expected_children" in options:  # of any number of n-grams
            raise input_error(owner, "no expected_children", "expected_children", "Give std, the scale of the weights.")
        check_count(owner, "stride", stride)
        check_choice(owner, "votes", votes, ["shared", "full"])
        options = {"vote_bias": vote_bias, "leaky": leaky, "sampling": sampling, "routing": routing, **options}
        if routing in ("dynamic", "uniform"):
            options |= {"amendment": amendment is not False, "squash": squash}
        elif amendment is not None:
            options["amendment"] = amendment  # an error for routings without this option
        self.noise = noise
        self.evidence = WordEvidence(vocabulary, classes) if word_evidence and encoder is None else None
        first = min(ngrams) - 1 if padding else -max(ngrams) + 1  # words that the first n-gram does without
        self.shortest = max(1, 1 - first + stride * max(0, window - 1))
        self.branches = nn.ModuleList(
            Branch(
                self.dim,
                classes + noise,
                ngram,
                filters=filters,
                capsules=capsules,
                capsule_dim=capsule_dim,
                window_capsules=window_capsules,
                window=window,
                stride=stride,
                padding=padding,
                squash=squash,
                votes=votes,
                options=options,
            )
            for ngram in ngrams
        )

    @property
    def readout(self) -> str:
        """That of the routing of the last layer."""
        return self.routed_layers[-1].routing.readout

    @property
    def routed_layers(self) -> list[RoutedLayer]:
        """The routed layers of all branches."""
        return [layer for branch in self.branches for layer in branch.routed_layers]  # type: ignore[union-attr]

    def forward(self, tokens: Int[Tensor, "b t"] | Float[Tensor, "b t c"]) -> Capsules:
        vectors, ends = self.features(tokens)
        answers = [branch(vectors, ends) for branch in self.branches]
        classes = [Capsules(*(part[:, : self.classes] for part in answer[:2])) for answer in answers]
        capsules = classes[0] if len(classes) == 1 else self._mean(classes)
        if self.evidence is None:
            return capsules
        return with_evidence(capsules, self.evidence(tokens), self.readout, self.training)

    def _mean(self, answers: list[Capsules]) -> Capsules:
        """The class capsules of all branches, averaged."""
        poses = torch.stack([answer.poses for answer in answers]).mean(0)
        if self.readout == "length":
            return Capsules(poses, length(poses))
        return Capsules(poses, torch.stack([answer.activations for answer in answers]).mean(0))

    def trace(self, tokens: Int[Tensor, "b t"] | Float[Tensor, "b t c"]) -> list[list[Step]]:
        """For every layer of every branch, the steps of the routing: see `Routing.trace`."""
        vectors, ends = self.features(tokens)
        return [trace for branch in self.branches for trace in branch.trace(vectors, ends)]  # type: ignore[operator]


class Text(TextCapsules):
    """N-gram capsules that vote for the classes directly: Capsule-B without its layer of convolutional capsules.

    More filters and fewer capsules than Capsule-B take a quarter of its time and learn as well, also many classes. What
    single words and pairs of words say for the classes is added, which few texts are enough for.

    vocabulary, classes, ngrams, filters, capsules, squash, word_evidence and further arguments: see `TextCapsules`.
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        ngrams: tuple[int, ...] = (3, 4, 5),
        filters: int = 128,
        capsules: int = 4,
        squash: str = "exponential",
        word_evidence: bool = True,
        **options: Any,
    ) -> None:
        if "window" in options or "window_capsules" in options:
            remedy = 'Choose "text-a" or "text-b", which have them.'
            raise input_error("Text", "no convolutional capsules", "window or window_capsules", remedy)
        sizes: dict[str, Any] = {"ngrams": ngrams, "filters": filters, "capsules": capsules}
        sizes |= {"squash": squash, "word_evidence": word_evidence}
        super().__init__(vocabulary, classes, window=0, **sizes, **options)


class TextA(TextCapsules):
    """Capsule-A of Zhao 2018: `TextCapsules` with 3-grams."""

    recipes: ClassVar[dict[str, Recipe]] = {
        **TextCapsules.recipes,
        "paper": with_options(ZHAO, "dropout=0"),
        "code": ZHAO_CODE,
    }


class TextB(TextCapsules):
    """Capsule-B of Zhao 2018: `TextCapsules` with n-grams of 3, 4 and 5 words, whose poses are averaged.

    vocabulary, classes, ngrams and further arguments: see `TextCapsules`.
    """

    recipes = TextA.recipes

    def __init__(self, vocabulary: int, classes: int, *, ngrams: tuple[int, ...] = (3, 4, 5), **options: Any) -> None:
        super().__init__(vocabulary, classes, ngrams=ngrams, **options)
