"""Small layers and children for the tests of tiles, and what it means that tiles change nothing."""

import torch

import torchcaps as tc
from torchcaps.functional import combine


def capsules(*shape, masked=False):
    generator = torch.Generator().manual_seed(5)
    poses = torch.randn(*shape, generator=generator, dtype=torch.float64)
    activations = torch.rand(shape[:-1], generator=generator, dtype=torch.float64)
    mask = torch.rand(shape[:-1], generator=generator) > 0.3 if masked else None
    return tc.Capsules(poses.requires_grad_(), activations.requires_grad_(), mask)


def outcome(layer, children, **options):
    """Parents, couplings, and the gradients of everything that has one."""
    torch.manual_seed(3)
    routed = layer.route(children, **options)
    torch.manual_seed(3)
    parents = layer(children)
    if not options:
        torch.testing.assert_close(parents[:2], routed[:2], rtol=1e-12, atol=1e-14)
    loss = sum((part * torch.linspace(-1, 1, part.numel(), dtype=part.dtype).view_as(part)).sum() for part in routed)
    leaves = [leaf for leaf in (children.poses, children.activations, *layer.parameters()) if leaf.requires_grad]
    return [*routed, *torch.autograd.grad(loss, leaves, allow_unused=True)]


def assert_same(make, children, **options):
    """One row a tile, untiled, and all in one tile with gradient factors, in float64."""
    torch.manual_seed(0)
    layer = make().double()
    layer.tile_bytes = 0
    plain = outcome(layer, children, **options)
    assert any(part is not None for part in plain[3:])
    for size in (1, 2**40):
        layer.tile_bytes = size
        for mine, expected in zip(outcome(layer, children, **options), plain, strict=True):
            if expected is None or mine is None:
                assert mine is expected or not (mine if expected is None else expected).any()
            else:
                torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-11)


def dense(**options):
    return lambda: tc.DenseCapsules(7, 4, 5, 6, **options)


class Sizes(tc.Routing):
    """Uniform routing that writes down how many examples it sees at a time."""

    seen: list

    def update(self, votes, weights, previous, step):
        self.seen.append(tuple(votes.shape))
        return combine(weights, votes)

    def read(self, clusters, couplings, weights):
        return tc.Routed(clusters, clusters.norm(dim=-1), couplings)
