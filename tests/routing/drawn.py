"""Votes drawn at random, and what objectives of all routings do."""

from itertools import pairwise

import torch
from hypothesis import strategies as st

SIZES = {
    "children": st.integers(1, 12),
    "parents": st.integers(1, 6),
    "dim": st.integers(1, 8),
    "scale": st.sampled_from([0.01, 0.3, 1.0, 10.0]),
    "seed": st.integers(0, 1000),
}


def votes_of(children=7, parents=3, dim=5, scale=1.0, seed=0, leading=()):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*leading, children, parents, dim, dtype=torch.float64, generator=generator)


def assert_never_rises(steps, slack=1e-10):
    assert len(steps) > 1
    for before, after in pairwise(steps):
        assert (after.objective <= before.objective + slack * (1 + before.objective.abs())).all()
