"""What `test_triton` runs in a process of its own, where Triton's interpreter runs the kernels: TRITON_INTERPRET=1."""

from __future__ import annotations

import os
import random
import sys

import torch

import torchcaps as tc
from torchcaps.votes.gradients import MergedFactors
from torchcaps.votes.triton.products import TritonProducts

assert os.environ.get("TRITON_INTERPRET") == "1"


def close(left, right, tolerance=1e-9):
    torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)


def made(poses, weight, rows):
    """Votes [n i j d] in plain operations."""
    matrices, _, inner, _ = weight.shape
    children = poses.shape[-2]
    each = weight[torch.arange(children) % matrices]
    return torch.einsum("nirk,ijkc->nijrc", poses.unflatten(-1, (rows, inner)), each).flatten(-2)


def check_products(examples, children, matrices, parents, rows, inner, columns, dtype=torch.float64):
    """Every product against einsum on all votes, and gradients against autograd's."""
    poses = torch.randn(examples, children, rows * inner, dtype=dtype)
    weight = torch.randn(matrices, parents, inner, columns, dtype=dtype)
    votes, dim = made(poses, weight, rows), rows * columns
    products = TritonProducts(poses, weight, rows)
    pairs = torch.rand(examples, parents, children, dtype=dtype).mT
    place, linear, squared = (torch.randn(examples, parents, dim, dtype=dtype) for _ in range(3))
    offset = torch.randn(examples, parents, dtype=dtype)
    for origin in (None, place):
        moved = votes if origin is None else votes - origin.unsqueeze(1)
        found = products.sums(pairs, origin, masses=True, first=True, second=True)
        close(found.masses, pairs.sum(1))
        close(found.first, torch.einsum("nij,nijd->njd", pairs, moved))
        close(found.second, torch.einsum("nij,nijd->njd", pairs, moved**2))
        close(
            products.inner(linear, squared, offset, origin),
            torch.einsum("nijd,njd->nij", moved, linear)
            + torch.einsum("nijd,njd->nij", moved**2, squared)
            + offset.unsqueeze(1),
        )
        masses, first, means, scatter = products.moments(pairs, origin)
        close(masses, pairs.sum(1))
        close(first, torch.einsum("nij,nijd->njd", pairs, moved))
        close(means, first / masses.unsqueeze(-1))
        close(scatter, torch.einsum("nij,nijd->njd", pairs, (moved - means.unsqueeze(1)) ** 2))
    same = torch.full((), 0.25, dtype=dtype).expand(examples, children, parents)  # one number for all pairs
    close(products.sums(same, None, first=True).first, 0.25 * votes.sum(1))
    for pivot in (None, place):
        given = MergedFactors([pairs, 2 * pairs], [[linear], [squared, linear]], [[squared], []], pivot)
        learned = [poses.clone().requires_grad_(), weight.clone().requires_grad_()]
        again = made(*learned, rows)
        moved = again.detach() if pivot is None else again.detach() - pivot.unsqueeze(1)
        gradient = pairs.unsqueeze(-1) * (linear.unsqueeze(1) + squared.unsqueeze(1) * moved)
        gradient = gradient + 2 * pairs.unsqueeze(-1) * (squared + linear).unsqueeze(1)
        again.backward(gradient)
        for_poses, for_weight = products.gradients(given)
        close(for_poses, learned[0].grad)
        close(for_weight, learned[1].grad)


def compared(layer, children, tolerance=1e-8, couplings=None):
    """A layer's answers and gradients by the kernels, against those of votes that are made."""
    results = []
    for switch in ("1", "0"):
        os.environ["TORCHCAPS_TRITON"] = switch
        layer.zero_grad()
        poses = children.poses.clone().requires_grad_()
        given = children._replace(poses=poses)
        torch.manual_seed(0)
        parents, routed_by = layer(given), layer.plan(given).backend
        assert (routed_by == "triton") == (switch == "1"), layer.plan(given)
        (parents.poses.float().square().sum() + parents.activations.float().sum()).backward()
        learned = [each.grad for each in layer.parameters() if each.grad is not None]
        results.append([parents.poses, parents.activations, poses.grad, *learned])
    for left, right in zip(*results, strict=True):
        assert left.dtype == right.dtype
        close(left, right, tolerance)


def grid(*shape, dim=4, dtype=torch.float64, mask=False):
    there = torch.rand(*shape) > 0.3 if mask else None
    if there is not None:
        there[..., 0] = True
    return tc.Capsules(torch.randn(*shape, dim, dtype=dtype), torch.rand(*shape, dtype=dtype), there)


def layers():
    """Every routing that reads sums, in dense, convolutional and class layers."""
    count = 0
    for name in tc.ROUTINGS:
        for make, children in (
            (lambda **more: tc.DenseCapsules(4, 2, 3, 5, **more), grid(2, 4, dim=3)),
            (lambda **more: tc.ConvCapsules2d(2, 2, 4, 4, 3, stride=2, votes="matrix", **more), grid(1, 3, 5, 2)),
            (lambda **more: tc.ClassCapsules(1, 2, 4, 4, **more), grid(1, 2, 2, 1)),
        ):
            if name == "uniform" and make(routing=name).transform.in_capsules is None:
                continue
            more = {"iterations": 2} if "iterations" in tc.routing_options(name) else {}
            layer = make(routing=name, **more).double()
            os.environ["TORCHCAPS_TRITON"] = "1"
            layer(children)  # a routing that wants more than sums says so the first time
            if layer.plan(children).backend != "triton":
                assert "asks for votes" in layer.plan(children).refusals["triton"], (name, layer.plan(children))
                continue
            compared(layer, children)
            count += 1
    assert count >= 24, count
    return count


def odd():
    """Masks, strides, padding, dilation, windows that route alone, one example, none, sizes that are no powers of 2."""
    conv = tc.ConvCapsules2d
    cases = [
        (tc.DenseCapsules(7, 3, 5, 6), grid(1, 7, dim=5)),
        (tc.DenseCapsules(7, 3, 5, 6, vote_bias=True), grid(3, 7, dim=5, mask=True)),
        (tc.DenseCapsules(3, 2, 4, 4, votes="factorized", routing="em"), grid(2, 3)),
        (conv(2, 3, 9, 9, 3, padding=1, votes="matrix", routing="em"), grid(2, 3, 3, 2, dim=9, mask=True)),
        (conv(1, 2, 4, 4, 2, dilation=2, competition="window", routing="gaussian"), grid(2, 4, 4, 1)),
        (tc.ConvCapsules1d(2, 2, 4, 4, 3, routing="em"), grid(2, 6, 2, mask=True)),
        (tc.ConvTransposeCapsules2d(2, 2, 4, 4, 2, stride=2, votes="matrix", routing="em"), grid(1, 2, 2, 2)),
        (tc.ClassCapsules(2, 3, 16, 16, coordinates="first", routing="em"), grid(2, 3, 2, 2, dim=16)),
    ]
    for layer, children in cases:
        compared(layer.double(), children)
    os.environ["TORCHCAPS_TRITON"] = "1"
    empty = tc.DenseCapsules(7, 3, 5, 6)(tc.Capsules(torch.randn(0, 7, 5), torch.rand(0, 7)))
    assert empty.poses.shape == (0, 3, 6)
    assert isinstance(
        tc.DenseCapsules(4, 2, 80, 4).plan(grid(2, 4, dim=80, dtype=torch.float32)).refusals["triton"], str
    )
    return len(cases) + 2


def half():
    """float16 poses and matrices, added up in float32: nearer to the truth than votes that are made in float16."""
    layer = tc.DenseCapsules(64, 3, 8, 8)
    children = grid(4, 64, dim=8, dtype=torch.float32)
    os.environ["TORCHCAPS_TRITON"] = "1"
    truth = layer(children).poses
    small = layer.half()
    found = small(tc.Capsules(children.poses.half(), children.activations.half()))
    assert found.poses.dtype == torch.float16
    close(found.poses.float(), truth, 5e-3)
    loss = found.poses.float().square().sum()
    loss.backward()
    assert small.transform.weight.grad.dtype == torch.float16
    assert small.transform.weight.grad.isfinite().all()
    return 2


def repeats():
    """The same numbers come out every time, to the bit."""
    layer = tc.ConvCapsules2d(2, 2, 16, 16, 3, votes="matrix", routing="em")
    found = []
    for _ in range(2):
        layer.zero_grad()
        torch.manual_seed(0)
        parents = layer(grid(2, 4, 4, 2, dim=16, dtype=torch.float32))
        parents.poses.square().sum().backward()
        found.append([parents.poses.detach(), layer.transform.weight.grad.clone()])
    assert all(torch.equal(left, right) for left, right in zip(*found, strict=True))
    return 1


def squashes():
    """Squash and its gradients, also of the zero vector, and gradients of gradients."""
    for kind in ("quadratic", "half"):
        vectors = torch.randn(5, 3, 7, dtype=torch.float64)
        vectors[0, 0] = 0
        results = []
        for switch in ("1", "0"):
            os.environ["TORCHCAPS_TRITON"] = switch
            given = vectors.clone().requires_grad_()
            short = tc.squash(given, kind)
            assert ("Squashed" in type(short.grad_fn).__name__) == (switch == "1")
            (first,) = torch.autograd.grad((short**3).sum(), given, create_graph=True)
            (second,) = torch.autograd.grad(first[1:].square().sum(), given)
            results.append([short, first, second[1:]])  # torch's own is NaN for the zero vector
        for left, right in zip(*results, strict=True):
            close(left, right)
        os.environ["TORCHCAPS_TRITON"] = "1"
        assert torch.autograd.gradcheck(lambda v, kind=kind: tc.squash(v, kind), vectors[1:].requires_grad_())
        assert tc.squash(torch.zeros(0, 4), kind).shape == (0, 4)
    return 2


def products():
    sizes = [
        (3, 5, 5, 2, 1, 4, 5), (2, 6, 3, 3, 2, 3, 2), (1, 1, 1, 1, 1, 1, 1), (5, 9, 9, 2, 4, 4, 4),
        (2, 4, 1, 2, 3, 2, 3), (6, 3, 3, 1, 1, 8, 16),
    ]  # fmt: skip
    for size in sizes:
        check_products(*size)
    return len(sizes)


def at_random(count):
    """So many products and layers of random sizes."""
    for number in range(count):
        draw = random.Random(number)
        torch.manual_seed(number)
        if number % 3:
            matrices = draw.randint(1, 5)
            rows, inner, columns = draw.choice(
                [(1, 3, 5), (1, 8, 4), (2, 2, 2), (4, 4, 4), (3, 3, 3), (1, 1, 7), (2, 5, 3)]
            )
            places = draw.randint(1, 2)
            check_products(draw.randint(1, 5), matrices * places, matrices, draw.randint(1, 4), rows, inner, columns)
            continue
        routing = draw.choice(["dynamic", "em", "gaussian", "kmeans", "heinsen", "variational", "entropy"])
        more = {"routing": routing, "iterations": draw.randint(1, 3)}
        if number % 2:
            layer = tc.DenseCapsules(draw.randint(2, 6), draw.randint(2, 4), 4, draw.choice([3, 4, 6]), **more)
            children = grid(draw.randint(1, 4), layer.transform.in_capsules, mask=draw.random() < 0.3)
        else:
            padding = draw.randint(0, 1)
            layer = tc.ConvCapsules2d(
                2,
                draw.randint(1, 3),
                4,
                4,
                2,
                draw.randint(1, 2),
                padding,
                votes=draw.choice(["matrix", "full"]),
                **more,
            )
            children = grid(draw.randint(1, 2), 3, draw.randint(2, 4), 2)
        compared(layer.double(), children)
    return count


if __name__ == "__main__":
    torch.manual_seed(0)
    what = {"products": products, "layers": layers, "odd": odd, "half": half, "repeats": repeats, "squashes": squashes}
    done = at_random(int(sys.argv[2])) if sys.argv[1] == "random" else what[sys.argv[1]]()
    print(f"{done} checked")
