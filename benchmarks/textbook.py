"""Capsule layers as most public ports write them: broadcast products, everything kept. The baseline; frozen.

Same mathematics as torchcaps, nothing shared with it.
"""

import math

import torch


def dense_dynamic(poses, weight, iterations=3):
    """Poses [b i e] and weight [i j e d] to parents [b j d]: dynamic routing, gradients through all iterations."""
    votes = (weight.unsqueeze(0) * poses[:, :, None, :, None]).sum(3)  # [b i j d]
    logits = torch.zeros(votes.shape[:3], dtype=votes.dtype, device=votes.device)
    for iteration in range(iterations):
        couplings = torch.softmax(logits, dim=2)
        total = (couplings.unsqueeze(-1) * votes).sum(1)
        squared = (total**2).sum(-1, keepdim=True)
        parents = squared / (1 + squared) * total / torch.sqrt(squared + 1e-20)
        if iteration < iterations - 1:
            logits = logits + (votes * parents.unsqueeze(1)).sum(-1)
    return parents


def conv_em(poses, activations, weight, kernel, stride, iterations=3, inverse_temperature=0.01, floor=1e-4, eps=1e-7):
    """Poses [b h w i 16], activations [b h w i], weight [(k k i) j 4 4]; every window routes for itself."""
    batch, types = poses.shape[0], poses.shape[3]
    windows = poses.unfold(1, kernel, stride).unfold(2, kernel, stride).permute(0, 1, 2, 5, 6, 3, 4)
    height, width = windows.shape[1:3]
    children = kernel * kernel * types
    matrices = windows.reshape(batch, height, width, children, 1, 4, 4)
    votes = torch.matmul(matrices, weight).flatten(-2)  # [b h w n j 16]
    active = activations.unfold(1, kernel, stride).unfold(2, kernel, stride).permute(0, 1, 2, 4, 5, 3)
    active = active.reshape(batch, height, width, children, 1)
    couplings = torch.full(votes.shape[:-1], 1 / votes.shape[-2], dtype=votes.dtype, device=votes.device)
    for iteration in range(iterations):
        weights = (couplings * active).unsqueeze(-1)
        mass = weights.sum(3, keepdim=True) + eps
        means = (weights * votes).sum(3, keepdim=True) / mass
        variances = (weights * (votes - means) ** 2).sum(3, keepdim=True) / mass + floor
        cost = (0.5 * torch.log(variances) * mass).sum(-1)
        annealed = inverse_temperature * (1 - 0.95 ** (iteration + 1))
        parents = torch.sigmoid(-annealed * cost)
        if iteration < iterations - 1:
            density = -((votes - means) ** 2) / (2 * variances) - 0.5 * torch.log(2 * math.pi * variances)
            couplings = torch.softmax(torch.log(parents) + density.sum(-1), dim=-1)
    return means.squeeze(3), parents.squeeze(3)
