"""Toys of five kinds, each an arrangement of parts with random proportions and postures."""

from __future__ import annotations

import random
from collections.abc import Callable

from torchcaps.data.render import Part, Solid, blade, part, rod


def _animal(dice: random.Random) -> list[Part]:
    pick = dice.uniform
    long, wide, deep = pick(0.42, 0.6), pick(0.15, 0.22), pick(0.15, 0.23)
    leg, thick = pick(0.25, 0.5), pick(0.055, 0.09)
    back = leg + deep
    parts = [part("ball", (0.0, 0.0, back), (long, wide, deep))]
    for end in (1, -1):
        for side in (1, -1):
            hip = end * long * 0.62
            foot = (hip + pick(-0.12, 0.12), side * wide * 0.8, 0.0)
            parts.append(rod((hip, side * wide * 0.55, back), foot, thick))
    neck, rise = pick(0.22, 0.45), pick(0.1, 1.2)
    chest = (long * 0.75, 0.0, back + deep * 0.2)
    nape = (chest[0] + neck * 0.7, pick(-0.1, 0.1), chest[2] + neck * rise)
    muzzle = pick(0.15, 0.23)
    parts += [
        rod(chest, nape, pick(0.07, 0.11)),
        part("ball", (nape[0] + muzzle * 0.5, nape[1], nape[2]), (muzzle, 0.1, 0.11), pitch=pick(-40, 5)),
    ]
    ear = pick(0.1, 0.25)
    for side in (1, -1):
        base = (nape[0], nape[1] + side * 0.06, nape[2] + 0.06)
        parts.append(rod(base, (base[0] - 0.05, base[1] + side * 0.06, base[2] + ear), 0.035))
    tail = pick(0.25, 0.45)
    root = (-long * 0.85, 0.0, back + deep * 0.2)
    tip = (root[0] - tail * 0.7, pick(-0.15, 0.15), root[2] + tail * pick(-0.8, 0.8))
    return [*parts, rod(root, tip, pick(0.035, 0.06))]


def _human(dice: random.Random) -> list[Part]:
    pick = dice.uniform
    leg, torso, wide = pick(0.45, 0.6), pick(0.38, 0.48), pick(0.14, 0.2)
    neck = leg + torso
    parts = [
        part(dice.choice(["ball", "cube"]), (0.0, 0.0, leg + torso / 2), (pick(0.1, 0.14), wide, torso / 2 + 0.03)),
        part("ball", (0.02, 0.0, neck + 0.15), (0.13, 0.12, pick(0.13, 0.16))),
    ]
    stride = pick(-0.35, 0.35)
    for side in (1, -1):
        hip = (0.0, side * wide * 0.5, leg + 0.05)
        foot = (side * stride, side * wide * pick(0.6, 1.4), 0.05)
        knee = ((hip[0] + foot[0]) / 2 + 0.06, (hip[1] + foot[1]) / 2, leg * 0.5)
        shoulder = (0.0, side * (wide + 0.02), neck - 0.05)
        ahead, raise_ = pick(-0.15, 0.25), pick(-0.25, 0.15)
        elbow = (ahead, shoulder[1] + side * pick(0.08, 0.2), shoulder[2] + raise_)
        hand = (elbow[0] + pick(0.0, 0.2), elbow[1] + side * pick(-0.05, 0.15), elbow[2] + pick(-0.25, 0.25))
        parts += [rod(hip, knee, 0.085), rod(knee, foot, 0.07), rod(shoulder, elbow, 0.06), rod(elbow, hand, 0.055)]
        parts.append(part("cube", (foot[0] + 0.06, foot[1], 0.04), (0.13, 0.06, 0.04)))
    return parts


def _airplane(dice: random.Random) -> list[Part]:
    pick = dice.uniform
    thick, clear = pick(0.11, 0.17), pick(0.15, 0.25)
    axis = clear + thick
    parts = [
        rod((-1.0, 0.0, axis + 0.04), (0.8, 0.0, axis), thick, "ball"),
        rod((-0.3, 0.0, axis), (0.5, 0.0, axis), thick),
        part("ball", (0.5, 0.0, axis), (pick(0.2, 0.4), thick, thick)),
    ]
    reach, chord, sweep = pick(0.7, 1.0), pick(0.13, 0.2), pick(0.0, 0.5)
    root, rise, level = pick(0.05, 0.3), pick(0.0, 0.2), axis + pick(-0.6, 0.8) * thick
    tail, fin = pick(0.28, 0.42), pick(0.3, 0.45)
    pods = dice.choice([[], [0.4], [0.35, 0.65]])
    for side in (1, -1):
        parts += [
            blade((root, 0.0, level), (root - sweep * reach, side * reach, level + rise * reach), chord, 0.03),
            blade((-0.8, 0.0, axis + 0.06), (-0.8 - sweep * tail, side * tail, axis + 0.06), 0.1, 0.025),
        ]
        for pod in pods:
            x, y, z = root + chord - sweep * reach * pod, side * reach * pod, level + rise * reach * pod - 0.08
            parts.append(rod((x - 0.22, y, z), (x + 0.1, y, z), 0.07))
    for x, y in ((0.5, 0.0), (0.0, 0.2), (0.0, -0.2)):
        parts.append(rod((x, y / 2, axis), (x, y, 0.0), 0.04))
    return [*parts, blade((-0.75, 0.0, axis), (-0.95, 0.0, axis + fin), 0.11, 0.025)]


def _wheels(axles: list[float], wide: float, radius: float) -> list[Part]:
    places = [(x, side) for x in axles for side in (1, -1)]
    return [rod((x, side * (wide - 0.1), radius), (x, side * (wide + 0.02), radius), radius) for x, side in places]


def _truck(dice: random.Random) -> list[Part]:
    pick = dice.uniform
    wide, radius, bed = pick(0.25, 0.32), pick(0.12, 0.16), 0.05
    cab, load, gap = pick(0.17, 0.24), pick(0.42, 0.6), pick(0.05, 0.12)
    floor, roof, tall = radius * 1.5, pick(0.32, 0.46), pick(0.3, 0.6)
    front, back = load + gap, -cab
    parts = [
        part("cube", ((front + cab + back - load) / 2, 0.0, floor), ((front + cab - back + load) / 2, wide * 0.7, bed)),
        part("cube", (front, 0.0, floor + roof / 2), (cab, wide * 0.95, roof / 2)),
    ]
    if dice.random() < 0.5:
        hood = pick(0.1, 0.18)
        parts.append(part("cube", (front + cab + hood, 0.0, floor + roof * 0.22), (hood, wide * 0.8, roof * 0.22)))
    if dice.random() < 0.3:
        parts.append(rod((back - load, 0.0, floor + bed + wide), (back + load, 0.0, floor + bed + wide), wide))
    else:
        parts.append(part("cube", (back, 0.0, floor + bed + tall / 2), (load, wide, tall / 2)))
    axles = [front, back - load * 0.6, *([back - load * 0.1] if dice.random() < 0.5 else [])]
    return parts + _wheels(axles, wide, radius)


def _car(dice: random.Random) -> list[Part]:
    pick = dice.uniform
    long, wide, radius = pick(0.7, 0.95), pick(0.3, 0.38), pick(0.14, 0.18)
    deep, roof, cabin = pick(0.1, 0.14), pick(0.2, 0.3), pick(0.3, 0.45)
    top, back = radius + 2 * deep, pick(-0.25, 0.0)
    parts = [part("cube", (0.0, 0.0, radius + deep), (long, wide, deep))]
    if dice.random() < 0.5:
        parts.append(part("cube", (back, 0.0, top + roof / 2), (cabin, wide * 0.85, roof / 2)))
    else:
        parts.append(part("ball", (back, 0.0, top), (cabin * 1.25, wide * 0.9, roof * 1.1)))
    return parts + _wheels([long * 0.6, -long * 0.6], wide, radius)


KINDS: dict[str, Callable[[random.Random], list[Part]]] = {
    "animal": _animal,
    "human": _human,
    "airplane": _airplane,
    "truck": _truck,
    "car": _car,
}


def solid(kind: str, seed: int, size: float = 1.0) -> Solid:
    """One toy of a kind, of this size (see `Solid.stand`)."""
    return Solid(KINDS[kind](random.Random(f"{kind} {seed}"))).stand(size)
