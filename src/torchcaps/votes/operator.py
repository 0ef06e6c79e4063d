"""A routed layer as one operator of torch: compilers see a single call, and keep tiles and kernels behind it.

`torch.compile` looks into whatever it compiles, and would make all votes of a batch at once. Compiled layers call
`torchcaps::route` instead, which runs the layer as it runs without a compiler. Nothing of it is kept for the backward
pass but what went in: `torchcaps::route_back` runs the layer again and differentiates it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torchcaps._core.types import Capsules
from torchcaps.votes.engine import route, with_parameters
from torchcaps.votes.job import WANTED, Gathered, Job

# What both operators take.
GIVEN = "Tensor poses, Tensor activations, Tensor? mask, Tensor[] parameters, int layer"
# What torch turns off within an operator.
AUTOGRAD = ("AutogradFunctionality", "AutogradOther", "AutogradCPU", "AutogradCUDA", "AutogradMPS", "ADInplaceOrView")
LAYERS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def handle(layer: Any) -> int:
    """A number by which the operator finds a layer."""
    number = id(layer)
    LAYERS[number] = layer
    return number


def parameters_of(layer: Any) -> list[Tensor]:
    """What the operator must be given beside children, so that it gets gradients."""
    return [*layer.transform.parameters(), *layer.routing.parameters()]


def suits_operator(layer: Any, gathered: Gathered) -> bool:
    """May a compiler see the layer as one operator? Not in an exported program, which must stand for itself."""
    draws = layer.routing.training and layer.routing.sampling < 1  # the backward pass would draw others
    whole = gathered.pairs is None and gathered.children.poses.is_floating_point() and layer.tile_bytes != 0
    return whole and not draws and not torch.compiler.is_exporting()


def route_compiled(layer: Any, children: Capsules) -> tuple[Tensor, Tensor]:
    """Poses and activations of the layer's parents, by the operator."""
    given = parameters_of(layer)
    dtype = given[0].dtype  # behind an operator there is no autocast
    poses, activations = children.poses.to(dtype), children.activations.to(dtype)
    call: Callable[..., tuple[Tensor, Tensor]] = torch.ops.torchcaps.route
    return call(poses, activations, children.mask, given, layer._handle)


def _run(layer: Any, children: Capsules, given: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Poses and activations of the layer's parents, with these tensors for its parameters."""
    count = len(list(layer.transform.parameters()))
    transform = _with(layer.transform, given[:count])
    routing = _with(layer.routing, given[count:])
    known = layer._job(layer._gather(children))
    if layer.routing in WANTED:
        WANTED[routing] = WANTED[layer.routing]
    poses, activations = route(Job(known.gathered, transform, routing, None, known.budget), 2)
    if routing in WANTED:
        WANTED[layer.routing] = WANTED[routing]
    return poses, activations


def _with(module: torch.nn.Module, given: list[Tensor]) -> Any:
    return with_parameters(module, dict(zip((name for name, _ in module.named_parameters()), given, strict=True)))


@torch.library.custom_op("torchcaps::route", mutates_args=(), schema=f"({GIVEN}) -> (Tensor, Tensor)")
def route_operator(
    poses: Tensor, activations: Tensor, mask: Tensor | None, parameters: list[Tensor], layer: int
) -> tuple[Tensor, Tensor]:
    """The parents of these children by the layer of this number."""
    with torch.no_grad():
        found = _run(LAYERS[layer], Capsules(poses, activations, mask), parameters)
    return tuple(each.clone(memory_format=torch.contiguous_format) for each in found)  # type: ignore[return-value]


@torch.library.custom_op(
    "torchcaps::route_back",
    mutates_args=(),
    schema=f"(Tensor for_poses, Tensor for_activations, {GIVEN}) -> Tensor[]",
)
def route_back(
    for_poses: Tensor,
    for_activations: Tensor,
    poses: Tensor,
    activations: Tensor,
    mask: Tensor | None,
    parameters: list[Tensor],
    layer: int,
) -> list[Tensor]:
    """The gradients of poses, activations and parameters."""
    given = (for_poses, for_activations)
    with _autograd():
        learned = [each.detach().requires_grad_() for each in (poses, activations, *parameters)]
        found = _run(LAYERS[layer], Capsules(learned[0], learned[1], mask), learned[2:])
        results, gradients = zip(*((r, g) for r, g in zip(found, given, strict=True) if r.requires_grad), strict=True)
        made = torch.autograd.grad(results, learned, gradients, allow_unused=True)
    pairs = zip(learned, made, strict=True)  # results of an operator are its own, and lie as it has promised
    return [x.new_zeros(x.shape) if g is None else g.clone(memory_format=torch.contiguous_format) for x, g in pairs]


@contextmanager
def _autograd() -> Iterator[None]:
    """Autograd, which torch turns off within an operator."""
    turned_off = torch._C._dispatch_tls_local_exclude_set()
    for key in AUTOGRAD:
        turned_off = turned_off.remove(getattr(torch._C.DispatchKey, key))
    turned_on = torch._C._dispatch_tls_local_include_set()
    with torch._C._ForceDispatchKeyGuard(turned_on, turned_off), torch.enable_grad():
        yield


def _shapes(
    poses: Tensor, activations: Tensor, mask: Tensor | None, parameters: list[Tensor], layer: int
) -> tuple[Tensor, Tensor]:
    known = LAYERS[layer]
    gathered = known._gather(Capsules(poses, activations, mask))
    out, parents = gathered.leading, known.transform.out_capsules
    return poses.new_empty(*out, parents, known.transform.out_dim), poses.new_empty(*out, parents)


def _shapes_back(
    for_poses: Tensor,
    for_activations: Tensor,
    poses: Tensor,
    activations: Tensor,
    mask: Any,
    parameters: list[Tensor],
    layer: int,
) -> list[Tensor]:
    return [each.new_empty(each.shape) for each in (poses, activations, *parameters)]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    poses, activations, mask, parameters, layer = inputs
    ctx.layer = layer
    ctx.save_for_backward(poses, activations, mask, *parameters)


def _backward(ctx: Any, for_poses: Tensor, for_activations: Tensor) -> tuple[Any, ...]:
    poses, activations, mask, *parameters = ctx.saved_tensors
    back: Callable[..., list[Tensor]] = torch.ops.torchcaps.route_back
    first, second, *rest = back(for_poses, for_activations, poses, activations, mask, parameters, ctx.layer)
    return first, second, None, rest, None


route_operator.register_fake(_shapes)
route_operator.register_autograd(_backward, setup_context=_keep)
route_back.register_fake(_shapes_back)
