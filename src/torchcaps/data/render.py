"""A small renderer: a solid of a few parts on a table, under one lamp, with orthographic projection.

The axes of a solid: x forward, y left, z up, with the table at z = 0. Angles are in degrees.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Shape = Literal["ball", "cube", "tube"]
Point = tuple[float, float, float]

# Minimal distance of a part that casts a shadow, so that no point shades itself.
SKIN = 1e-3
# Replaces 0 in directions of rays that are parallel to a face.
TINY = 1e-6
# Pixels along the side of a tile, whose rays are traced together.
TILE = 4
# Rays at once: many, to reduce the overhead of Python, but few enough for a processor's cache.
RAYS = 2**18


@contextmanager
def _one_thread() -> Iterator[None]:
    """A context with one thread, because threads are slower for such short operations."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Part(NamedTuple):
    """A unit shape, mapped [3 3] and moved to a place [3].

    Unit shapes reach from -1 to 1 on every axis; a tube is round about its z axis.
    """

    shape: Shape
    map: Tensor
    place: Tensor

    def reach(self) -> Tensor:
        """Half the sizes of the box about the part, [3]."""
        if self.shape == "ball":
            return self.map.norm(dim=1)
        if self.shape == "cube":
            return self.map.abs().sum(1)
        return self.map[:, :2].norm(dim=1) + self.map[:, 2].abs()


def part(shape: Shape, place: Point, sizes: Point, pitch: float = 0.0) -> Part:
    """A part of these half sizes, its front raised by pitch."""
    up = math.radians(pitch)
    turn = [[math.cos(up), 0.0, -math.sin(up)], [0.0, 1.0, 0.0], [math.sin(up), 0.0, math.cos(up)]]
    return Part(shape, torch.tensor(turn) * torch.tensor(sizes), torch.tensor(place))


def rod(start: Point, end: Point, radius: float, shape: Shape = "tube") -> Part:
    """A round part from one point to another."""
    first, last = torch.tensor(start), torch.tensor(end)
    along = (last - first) / 2
    # Any vector off the axis starts the frame: here the coordinate that the axis has least of.
    side = torch.linalg.cross(along, torch.eye(3)[int(along.abs().argmin())])
    other = torch.linalg.cross(along, side)
    columns = [radius * side / side.norm(), radius * other / other.norm(), along]
    return Part(shape, torch.stack(columns, 1), (first + last) / 2)


def blade(start: Point, end: Point, chord: float, thin: float) -> Part:
    """A flat part from one point to another, such as a wing; chord is its half size along x."""
    first, last = torch.tensor(start), torch.tensor(end)
    along, front = (last - first) / 2, torch.tensor([1.0, 0.0, 0.0])
    across = torch.linalg.cross(front, along)
    return Part("cube", torch.stack([chord * front, along, thin * across / across.norm()], 1), (first + last) / 2)


class Solid:
    """The parts of one object."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)
        self.low = torch.stack([each.place - each.reach() for each in self.parts]).amin(0)
        self.high = torch.stack([each.place + each.reach() for each in self.parts]).amax(0)

    def stand(self, size: float = 1.0) -> Solid:
        """The solid in the middle of the table, scaled to a size.

        The size is the mean of two measures: the half diagonal of its bounding box and the half width of a square with
        the area of its silhouette.
        """
        foot = torch.cat([(self.low + self.high)[:2] / 2, self.low[2:]])
        scale = size / ((float((self.high - self.low).norm()) + math.sqrt(_silhouette(self))) / 4)
        return Solid([Part(each.shape, each.map * scale, (each.place - foot) * scale) for each in self.parts])


class Lamp(NamedTuple):
    """A lamp: azimuth relative to the camera (positive to its right), elevation above the table.

    power: the light on a face turned to the lamp; glow: ambient light, most of it from above.
    """

    azimuth: float
    elevation: float
    power: float
    glow: float


class Views(NamedTuple):
    """The variables of images of one solid, [v] each: camera, lamp and gray of the table.

    The camera is raised by elevation, and the solid turned by azimuth as on a turntable. right and up shift the image,
    in the units of the solid; span is half the width of the field of view.
    """

    elevation: Tensor
    azimuth: Tensor
    lamp: Tensor
    right: Tensor
    up: Tensor
    span: Tensor
    table: Tensor


@_one_thread()
def render(solid: Solid, gray: float, lamps: Sequence[Lamp], views: Views, side: int, samples: int = 2) -> Tensor:
    """Images [v side side] from 0 to 1 of a solid of this gray, with samples x samples rays for each pixel."""
    chunk = max(1, RAYS // (side * samples) ** 2)
    chunks = zip(*(values.split(chunk) for values in views), strict=True)
    return torch.cat([_render(solid, gray, lamps, Views(*each), side, samples) for each in chunks])


def _render(solid: Solid, gray: float, lamps: Sequence[Lamp], views: Views, side: int, samples: int) -> Tensor:
    tiles, tile = side // math.gcd(side, TILE), math.gcd(side, TILE)
    origins, rays = _camera(solid, views, tiles, tile * samples)
    first, which = _meet(solid, origins, rays, -math.inf)
    # The solid stands on the table, so it is in front of the table wherever a ray meets both.
    bare = which < 0
    first = torch.where(bare, origins[2] / -rays[2, :, None], first)
    points = origins + first * rays[..., None]
    normals = torch.zeros_like(points)
    normals[2] = 1
    normals[:, ~bare] = _normals(solid, which[~bare], points[:, ~bare])

    turn, height, power, glow = torch.tensor(lamps)[views.lamp].T
    light = _toward(turn - views.azimuth, height).repeat_interleave(tiles**2, 1)
    power, glow, table = torch.stack([power, glow, views.table]).repeat_interleave(tiles**2, 1)[..., None]
    dark = _meet(solid, points, light, SKIN)[1] >= 0
    lit = (normals * light[..., None]).sum(0).clamp(min=0) * ~dark
    shown = (power * lit + glow * (0.6 + 0.4 * normals[2])) * torch.where(bare, table, gray)
    pixels = shown.clamp(max=1).reshape(-1, tiles, tiles, tile, samples, tile, samples).mean((4, 6))
    return pixels.transpose(2, 3).reshape(-1, side, side)


def _toward(azimuth: Tensor, elevation: Tensor) -> Tensor:
    """Unit vectors [3 v] with these angles [v]; azimuth turns from x to y."""
    azimuth, elevation = azimuth.deg2rad(), elevation.deg2rad()
    flat = elevation.cos()
    return torch.stack([flat * azimuth.cos(), flat * azimuth.sin(), elevation.sin()])


def _camera(solid: Solid, views: Views, tiles: int, count: int) -> tuple[Tensor, Tensor]:
    """Origins [3 (v tile) ray] and directions [3 (v tile)], for tiles x tiles tiles of count x count rays.

    They are in the frame of the solid, in which the camera moves instead.
    """
    eye = _toward(-views.azimuth, views.elevation)
    upward = _toward(-views.azimuth, views.elevation + 90)
    rightward = _toward(90 - views.azimuth, torch.zeros_like(views.azimuth))
    steps = ((torch.arange(tiles * count) + 0.5) * (2 / (tiles * count)) - 1).reshape(tiles, count)
    across = steps[None, :, None, :].expand(tiles, tiles, count, count).reshape(-1)
    down = steps[:, None, :, None].expand(tiles, tiles, count, count).reshape(-1)
    across = views.span[:, None] * across - views.right[:, None]
    down = views.span[:, None] * down + views.up[:, None]
    middle = (solid.low + solid.high)[:, None, None] / 2
    origins = middle + rightward[..., None] * across - upward[..., None] * down
    return origins.reshape(3, -1, count**2), -eye.repeat_interleave(tiles**2, 1)


@_one_thread()
def _silhouette(solid: Solid) -> float:
    """The mean area of the silhouette, seen from all around, halfway up."""
    span = float((solid.high - solid.low).norm() / 2)
    azimuth = torch.arange(0.0, 360.0, 60.0)
    still = torch.zeros_like(azimuth)
    views = Views(still + 50, azimuth, still.long(), right=still, up=still, span=still + span, table=still)
    which = _meet(solid, *_camera(solid, views, 8, 8), -math.inf)[1]
    return float((which >= 0).double().mean()) * (2 * span) ** 2


def _meet(solid: Solid, origins: Tensor, rays: Tensor, start: float) -> tuple[Tensor, Tensor]:
    """The distance along each ray to the first part beyond start, and that part: [b n] each, inf and -1 for none.

    Bundles of rays share a direction: origins [3 b n], rays [3 b].
    """
    first, which = torch.full(origins.shape[1:], math.inf), torch.full(origins.shape[1:], -1)
    middle = origins.mean(2)
    radius = (origins - middle[..., None]).square().sum(0).amax(1).sqrt()
    for index, each in enumerate(solid.parts):
        # Most bundles miss a part and are skipped.
        gap = middle - each.place[:, None]
        gap = gap - (gap * rays).sum(0) * rays
        rows = (gap.square().sum(0).sqrt() < radius + each.reach().norm()).nonzero().squeeze(1)
        into = each.map.inverse()
        local = torch.tensordot(into, origins.index_select(1, rows) - each.place[:, None, None], 1)
        near, far = _span(each.shape, local, (into @ rays[:, rows])[..., None])
        before = first[rows]
        met = (near < far) & (near > start) & (near < before)
        first[rows] = torch.where(met, near, before)
        which[rows] = torch.where(met, index, which[rows])
    return first, which


def _span(shape: Shape, start: Tensor, ray: Tensor) -> tuple[Tensor, Tensor]:
    """Where rays in the frame of a unit shape, [3 ...], enter and leave it; for misses, leaving comes first."""
    if shape == "ball":
        return _round(start, ray)
    if shape == "tube":
        sides, ends = _round(start[:2], ray[:2]), _flat(start[2], ray[2])
        return torch.maximum(sides[0], ends[0]), torch.minimum(sides[1], ends[1])
    near, far = _flat(start, ray)
    return near.amax(0), far.amin(0)


def _flat(start: Tensor, ray: Tensor) -> tuple[Tensor, Tensor]:
    """Where each coordinate is between -1 and 1."""
    ray = torch.where(ray.abs() < TINY, TINY, ray)
    middle, half = start / -ray, 1 / ray.abs()
    return middle - half, middle + half


def _round(start: Tensor, ray: Tensor) -> tuple[Tensor, Tensor]:
    """Where the coordinates together are within the unit circle or ball."""
    square = ray.square().sum(0).clamp(min=TINY**2)
    middle = (start * ray).sum(0) / -square
    # 1 - the squared distance of the ray: the usual discriminant would lose precision.
    depth = 1 - (start + middle * ray).square().sum(0)
    half = (depth.clamp(min=0) / square).sqrt()
    return middle - half, middle + half


def _normals(solid: Solid, which: Tensor, points: Tensor) -> Tensor:
    """Outward unit normals [3 n] at points [3 n] on the surface of the parts which [n]."""
    normals = torch.empty_like(points)
    for index, each in enumerate(solid.parts):
        rows = (which == index).nonzero().squeeze(1)
        into = each.map.inverse()
        local = into @ (points[:, rows] - each.place[:, None])
        if each.shape == "cube":  # the face of the largest coordinate
            local = local * (local.abs() == local.abs().amax(0))
        elif each.shape == "tube":
            ends = local[:2].square().sum(0) < local[2].square()
            local = local * torch.stack([~ends, ~ends, ends])
        outward = into.T @ local
        normals[:, rows] = outward * outward.square().sum(0).rsqrt()
    return normals
