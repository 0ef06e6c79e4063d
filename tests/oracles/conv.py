"""Convolutional EM and dynamic routing in plain loops over positions: which parents see which child, one by one."""

import math

import torch

from tests.oracles.common import dot, norm


def sees(parent, offset, stride, padding, dilation):
    """The child position under a kernel offset of a parent position."""
    return tuple(p * s - pad + k * d for p, k, s, pad, d in zip(parent, offset, stride, padding, dilation, strict=True))


def positions(sizes):
    places = [()]
    for size in sizes:
        places = [(*place, x) for place in places for x in range(size)]
    return places


def inside(place, grid):
    return all(0 <= x < g for x, g in zip(place, grid, strict=True))


def edges(grid, kernel, stride, padding, types, parent_types, dilation=None):
    """All (parent, child) pairs that are connected, with the kernel offset between them."""
    dilation = dilation or (1,) * len(grid)
    sizes = zip(grid, kernel, stride, padding, dilation, strict=True)
    out = [(g + 2 * p - d * (k - 1) - 1) // s + 1 for g, k, s, p, d in sizes]
    for place in positions(out):
        for k, offset in enumerate(positions(kernel)):
            child = sees(place, offset, stride, padding, dilation)
            if inside(child, grid):
                for i in range(types):
                    for j in range(parent_types):
                        yield (*place, j), (*child, i), k


def transposed_edges(grid, kernel, stride, padding, output_padding, types, parent_types, dilation=None):
    """The same the other way round: each child reaches the parents that would see it in a convolution."""
    dilation = dilation or (1,) * len(grid)
    sizes = zip(grid, kernel, stride, padding, output_padding, dilation, strict=True)
    out = [(g - 1) * s - 2 * p + d * (k - 1) + more + 1 for g, k, s, p, more, d in sizes]
    for child in positions(grid):
        for k, offset in enumerate(positions(kernel)):
            place = sees(child, offset, stride, padding, dilation)
            if inside(place, out):
                for i in range(types):
                    for j in range(parent_types):
                        yield (*place, j), (*child, i), k


def conv_routing(kind, poses, activations, vote, all_edges, window=False, r=3, mask=None):
    """One example. `vote(pose, k, i, j)` is the vote of child type i at kernel offset k for parent type j."""
    V = {(p, c): vote(poses[c], k, c[-1], p[-1]) for p, c, k in all_edges if mask is None or mask[c]}
    children_of, rivals = {}, {}
    for p, c in V:
        children_of.setdefault(p, []).append(c)
        group = (c, p[:-1]) if window else c  # who competes for a child: all that see it, or those of one window
        rivals.setdefault(group, []).append((p, c))
    R = {edge: torch.tensor(1 / len(group), dtype=poses.dtype) for group in rivals.values() for edge in group}
    b = {edge: torch.zeros((), dtype=poses.dtype) for edge in V}
    for iteration in range(r):
        if iteration > 0:
            for p, c in V:
                if kind == "dynamic":
                    b[p, c] = b[p, c] + dot(V[p, c], pose[p])
                else:
                    quadratic = sum((V[p, c] - pose[p]) ** 2 / (2 * var[p]))
                    b[p, c] = torch.log(act[p]) - quadratic - sum(torch.log(2 * math.pi * var[p])) / 2
            for group in rivals.values():
                top = max(float(b[edge].detach()) for edge in group)
                e = {edge: torch.exp(b[edge] - top) for edge in group}
                for edge in group:
                    R[edge] = e[edge] / sum(e.values())
        pose, act, var = {}, {}, {}
        for p, members in children_of.items():
            if kind == "dynamic":
                s = sum(R[p, c] * V[p, c] for c in members)
                pose[p] = norm(s) / (1 + norm(s) ** 2) * s
                act[p] = norm(pose[p])
                continue
            mass = sum(R[p, c] * activations[c] for c in members) + 1e-7
            pose[p] = sum(R[p, c] * activations[c] * V[p, c] for c in members) / mass
            var[p] = sum(R[p, c] * activations[c] * (V[p, c] - pose[p]) ** 2 for c in members) / mass + 1e-4
            cost = sum(torch.log(torch.sqrt(var[p]))) * mass
            act[p] = 1 / (1 + torch.exp(0.01 * (1 - 0.95 ** (iteration + 1)) * cost))
    return pose, act, R
