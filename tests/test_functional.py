import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchcaps as tc
from torchcaps.functional import safe_divide, safe_log, unit


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("quadratic", 4 / 5),
        ("half", 4 / 4.5),
        ("exponential", 1 - math.exp(-2)),
        ("tanh", math.tanh(2)),
        ("rational", 2 / 3),
        ("none", 2.0),
    ],
)
def test_squash_gives_the_length_of_its_formula(kind, expected):
    squashed = tc.squash(torch.tensor([0.0, 2.0, 0.0]), kind)
    torch.testing.assert_close(squashed, torch.tensor([0.0, expected, 0.0]))


def test_every_squash_is_tested_by_hand():
    assert set(tc.SQUASHES) == {"quadratic", "half", "exponential", "tanh", "rational", "none"}


@pytest.mark.parametrize("kind", tc.SQUASHES)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-8, 1.0, 1e4, 1e8])
def test_squash_is_finite_in_value_and_gradient(kind, scale):
    vectors = (scale * torch.ones(3, 4)).requires_grad_()
    squashed = tc.squash(vectors, kind)
    squashed.sum().backward()
    assert squashed.isfinite().all()
    assert vectors.grad.isfinite().all()


@given(st.integers(1, 9), st.sampled_from([kind for kind in tc.SQUASHES if kind != "none"]), st.integers(0, 99))
def test_squash_keeps_direction_and_stays_below_one(dim, kind, seed):
    vectors = 3 * torch.randn(7, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    squashed = tc.squash(vectors, kind)
    assert (tc.length(squashed) < 1).all()
    torch.testing.assert_close(unit(squashed), unit(vectors))


def test_half_squash_never_lengthens_a_vector():
    """Its gain peaks at 1/sqrt(2): it doubles the quadratic one near zero, but amplifies nothing."""
    lengths = torch.linspace(1e-3, 20, 5000, dtype=torch.float64)
    half, quadratic = (tc.length(tc.squash(lengths.unsqueeze(-1), kind)) / lengths for kind in ("half", "quadratic"))
    assert half.max() == pytest.approx(1 / math.sqrt(2), abs=1e-5)
    assert float(half[0] / quadratic[0]) == pytest.approx(2, rel=1e-5)


def test_unknown_squash_lists_the_choices():
    with pytest.raises(ValueError, match=r"squash: expected kind to be one of 'quadratic', 'half'.*got 'cubic'"):
        tc.squash(torch.ones(2), "cubic")


def test_length_has_zero_gradient_at_zero():
    vectors = torch.zeros(2, 3, requires_grad=True)
    tc.length(vectors).sum().backward()
    assert (vectors.grad == 0).all()


@pytest.mark.parametrize("shape", [(4, 3, 5), (2, 1), (3, 0, 2)])
def test_length_of_numbers_that_do_not_lie_side_by_side(shape):
    side_by_side = torch.randn(shape, dtype=torch.float64)
    side_by_side.flatten(0, -2)[:1] = 0
    apart = side_by_side.transpose(0, -1).contiguous().transpose(0, -1).requires_grad_()
    expected = torch.linalg.vector_norm(side_by_side, dim=-1)
    torch.testing.assert_close(tc.length(apart), expected)
    (gradient,) = torch.autograd.grad(tc.length(apart).sum(), apart)
    torch.testing.assert_close(gradient, side_by_side / torch.where(expected == 0, 1, expected).unsqueeze(-1))
    assert torch.autograd.gradgradcheck(tc.length, apart.detach()[1:].requires_grad_())


def test_safe_log_is_minus_infinity_at_zero_without_gradient():
    values = torch.tensor([0.0, 1.0, math.e], requires_grad=True)
    logs = safe_log(values)
    torch.testing.assert_close(logs.detach(), torch.tensor([-math.inf, 0.0, 1.0]))
    logs[1:].sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([0.0, 1.0, 1 / math.e]))


def test_safe_divide_keeps_the_numerator_over_zero():
    torch.testing.assert_close(
        safe_divide(torch.tensor([3.0, 3.0]), torch.tensor([0.0, 2.0])), torch.tensor([3.0, 1.5])
    )


def test_unit_of_zero_is_zero():
    torch.testing.assert_close(unit(torch.tensor([[0.0, 0.0], [3.0, 4.0]])), torch.tensor([[0.0, 0.0], [0.6, 0.8]]))
