"""Capsule layers as in most public code: broadcast products that keep all tensors. The baseline; frozen.

The same mathematics as torchcaps, weights in the same shapes, and no shared code.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn


def squash(total: Tensor) -> Tensor:
    squared = (total**2).sum(-1, keepdim=True)
    return squared / (1 + squared) * total / torch.sqrt(squared + 1e-20)


def dense_dynamic(poses: Tensor, weight: Tensor, iterations: int = 3, last: bool = False) -> Tensor:
    """Poses [b i e] and weight [i j e d] to parents [b j d]; gradients through all iterations, or the last only."""
    votes = (weight.unsqueeze(0) * poses[:, :, None, :, None]).sum(3)  # [b i j d]
    logits = torch.zeros(votes.shape[:3], dtype=votes.dtype, device=votes.device)
    constant = votes.detach() if last else votes
    for _ in range(iterations - 1):
        couplings = torch.softmax(logits, dim=2)
        parents = squash((couplings.unsqueeze(-1) * constant).sum(1))
        logits = logits + (constant * parents.unsqueeze(1)).sum(-1)
    couplings = torch.softmax(logits, dim=2)
    return squash((couplings.unsqueeze(-1) * votes).sum(1))


class Costs(NamedTuple):
    """The learned costs of EM, and its inverse temperature after infinitely many iterations."""

    beta_use: Tensor
    beta_active: Tensor
    inverse_temperature: float | Tensor = 0.01


def m_step(votes: Tensor, weights: Tensor, axis: int, costs: Costs, iteration: int) -> tuple[Tensor, Tensor, Tensor]:
    """Means, variances and activations of parents whose children run along `axis`; weights have a last axis of one."""
    mass = weights.sum(axis, keepdim=True) + 1e-7
    means = (weights * votes).sum(axis, keepdim=True) / mass
    variances = (weights * (votes - means) ** 2).sum(axis, keepdim=True) / mass + 1e-4
    cost = ((costs.beta_use + 0.5 * torch.log(variances)) * mass).sum(-1)
    temperature = costs.inverse_temperature * (1 - 0.95 ** (iteration + 1))
    return means, variances, torch.sigmoid(temperature * (costs.beta_active - cost))


def log_scores(votes: Tensor, means: Tensor, variances: Tensor, parents: Tensor) -> Tensor:
    density = -((votes - means) ** 2) / (2 * variances) - 0.5 * torch.log(2 * math.pi * variances)
    return torch.log(parents) + density.sum(-1)


def conv_em(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    costs: Costs,
    kernel: int,
    stride: int,
    iterations: int = 3,
    across: bool = False,
) -> tuple[Tensor, Tensor]:
    """Poses [b h w i 16], activations [b h w i], weight [(k k i) j 4 4] to means [b h w j 16] and activations.

    Children are shared among the parents of each window alone, or across all windows that see them.
    """
    batch, high, wide, types = activations.shape
    windows = poses.unfold(1, kernel, stride).unfold(2, kernel, stride).permute(0, 1, 2, 5, 6, 3, 4)
    height, width = windows.shape[1:3]
    children = kernel * kernel * types
    matrices = windows.reshape(batch, height, width, children, 1, 4, 4)
    votes = torch.matmul(matrices, weight).flatten(-2)  # [b h w n j 16]
    active = activations.unfold(1, kernel, stride).unfold(2, kernel, stride).permute(0, 1, 2, 4, 5, 3)
    active = active.reshape(batch, height, width, children, 1)
    rows = torch.arange(height)[:, None, None, None] * stride + torch.arange(kernel)[:, None]
    columns = torch.arange(width)[:, None, None] * stride + torch.arange(kernel)
    places = (rows * wide + columns).reshape(1, -1, 1).expand(batch, -1, types)  # of each window's children on the grid

    def share(scores: Tensor) -> Tensor:
        if not across:
            return torch.softmax(scores, dim=-1)
        flat = scores.reshape(batch, -1, types, scores.shape[-1])  # [b (h w k k) i j]
        top = torch.full((batch, high * wide, types), -math.inf, dtype=scores.dtype)
        top = top.scatter_reduce(1, places, flat.detach().amax(-1), "amax")
        raised = torch.exp(flat - top.gather(1, places).unsqueeze(-1))
        total = torch.zeros_like(top).scatter_add(1, places, raised.sum(-1))
        return (raised / total.gather(1, places).unsqueeze(-1)).reshape(scores.shape)

    couplings = share(torch.zeros(votes.shape[:-1], dtype=votes.dtype))
    for iteration in range(iterations):
        weights = (couplings * active).unsqueeze(-1)
        means, variances, parents = m_step(votes, weights, 3, costs, iteration)
        if iteration < iterations - 1:
            couplings = share(log_scores(votes, means, variances, parents))
    return means.squeeze(3), parents.squeeze(3)


def class_em(
    poses: Tensor, activations: Tensor, weight: Tensor, costs: Costs, iterations: int = 3
) -> tuple[Tensor, Tensor]:
    """Poses [b h w i 16], activations [b h w i], weight [i j 4 4] to classes; coordinates run from -1/2 to 1/2."""
    batch, high, wide, types = activations.shape
    votes = torch.matmul(poses.reshape(batch, high, wide, types, 1, 4, 4), weight)
    place = torch.zeros(high, wide, 1, 1, 4, 4, dtype=votes.dtype)
    place[..., 0, 3] = ((torch.arange(high) + 0.5) / high - 0.5).view(high, 1, 1, 1)
    place[..., 1, 3] = ((torch.arange(wide) + 0.5) / wide - 0.5).view(1, wide, 1, 1)
    votes = (votes + place).flatten(-2).flatten(1, 3)  # [b (h w i) j 16]
    active = activations.flatten(1).unsqueeze(-1)
    couplings = torch.full(votes.shape[:-1], 1 / votes.shape[-2], dtype=votes.dtype)
    for iteration in range(iterations):
        weights = (couplings * active).unsqueeze(-1)
        means, variances, parents = m_step(votes, weights, 1, costs, iteration)
        if iteration < iterations - 1:
            couplings = torch.softmax(log_scores(votes, means, variances, parents), dim=-1)
    return means.squeeze(1), parents.squeeze(1)


def capsnet(
    images: Tensor, labels: Tensor, first: nn.Conv2d, primary: nn.Conv2d, weight: Tensor, decoder: nn.Module
) -> tuple[Tensor, Tensor]:
    """Class lengths and reconstructions of the network of Sabour 2017, with these convolutions, votes and decoder."""
    features = primary(torch.relu(first(images)))
    poses = squash(features.unflatten(1, (-1, 8)).permute(0, 3, 4, 1, 2).flatten(1, 3))
    parents = dense_dynamic(poses, weight)
    masked = parents * nn.functional.one_hot(labels, parents.shape[1]).unsqueeze(-1)
    drawn = decoder(masked.flatten(1)).view_as(images)
    return torch.sqrt((parents**2).sum(-1) + 1e-20), drawn


def shared_dynamic(poses: Tensor, weight: Tensor, bias: Tensor, iterations: int = 3) -> Tensor:
    """Poses [... i e], weight [j e d] and bias [j d] to parents [... j d]; leaky, children weighed by their length."""
    votes = torch.matmul(poses, weight.transpose(0, 1).flatten(1)).unflatten(-1, (-1, weight.shape[2])) + bias
    active = torch.sqrt((poses**2).sum(-1, keepdim=True) + 1e-20)
    logits = torch.zeros(votes.shape[:-1], dtype=votes.dtype, device=votes.device)
    for iteration in range(iterations):
        leak = torch.zeros_like(logits[..., :1])
        couplings = torch.softmax(torch.cat([logits, leak], -1), dim=-1)[..., :-1] * active
        parents = squash((couplings.unsqueeze(-1) * votes).sum(-3))
        if iteration < iterations - 1:
            logits = logits + (votes * parents.unsqueeze(-3)).sum(-1)
    return parents


def text_a(vectors: Tensor, branch: nn.Module, window: int = 3) -> Tensor:
    """Lengths of the class capsules, noise included, of Capsule-A (Zhao 2018), for word vectors [b c t]."""
    features = branch.primary.poses(torch.relu(branch.convolution(vectors)))  # type: ignore[union-attr,operator]
    types = branch.primary.out_capsules  # type: ignore[union-attr]
    poses = squash(features.unflatten(1, (types, -1)).permute(0, 3, 1, 2))  # [b t i e]
    windows = poses.unfold(1, window, 1).permute(0, 1, 4, 2, 3).flatten(2, 3)  # [b t (k i) e]
    first, last = branch.layers  # type: ignore[misc]
    parents = shared_dynamic(windows, first.transform.weight, first.transform.bias).flatten(1, 2)
    classes = shared_dynamic(parents, last.transform.weight, last.transform.bias)
    return torch.sqrt((classes**2).sum(-1) + 1e-20)
