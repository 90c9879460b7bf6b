"""A dog of one of four breeds, seen from the side, for stand-in photos: rods with thickness, merged
smoothly.

Lengths are roughly in heights of a labrador's back; x points to where the dog faces, y up, and 0 is
the ground.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from diagvib.scenes.dogs.drawing import Canvas, capsule, ellipse

Point = tuple[float, float, float]  # x, y, radius


@dataclass(frozen=True)
class Breed:
    """A body. leg: height at which a leg joins the body, and its thickness there; length: from rump
    to chest; rump, waist, chest, skull: radii; neck: from the chest to the skull's middle; muzzle:
    to its tip, with the radii of both ends; ear: its joint at the skull, its tip from there, radii
    of both ends; tail: its tip from the rump and radii."""

    leg: tuple[float, float]
    length: float
    rump: float
    waist: float
    chest: float
    neck: tuple[float, float, float]
    skull: float
    muzzle: tuple[float, float, float, float]
    ear: tuple[float, float, float, float, float, float]
    tail: tuple[float, float, float, float]
    two_ears: bool = False
    jowl: float = 0.0
    bib: float = 0.0  # how much of chest and muzzle is white, for coats with such marks
    fluff: float = 0.008


BREEDS = {
    "bulldog": Breed(
        leg=(0.19, 0.085),
        length=0.5,
        rump=0.16,
        waist=0.16,
        chest=0.235,
        neck=(0.22, 0.13, 0.2),
        skull=0.205,
        muzzle=(0.13, -0.05, 0.15, 0.135),
        ear=(-0.06, 0.17, -0.08, -0.03, 0.05, 0.022),
        tail=(-0.08, 0.05, 0.04, 0.03),
        jowl=0.085,
        bib=0.9,
        fluff=0.003,
    ),
    "corgi": Breed(
        leg=(0.17, 0.06),
        length=0.66,
        rump=0.2,
        waist=0.165,
        chest=0.19,
        neck=(0.2, 0.27, 0.14),
        skull=0.15,
        muzzle=(0.23, -0.06, 0.085, 0.04),
        ear=(-0.06, 0.1, -0.05, 0.23, 0.085, 0.02),
        tail=(-0.09, 0.05, 0.09, 0.06),
        two_ears=True,
        bib=1.0,
        fluff=0.009,
    ),
    "dachshund": Breed(
        leg=(0.13, 0.05),
        length=1.0,
        rump=0.13,
        waist=0.115,
        chest=0.15,
        neck=(0.22, 0.24, 0.095),
        skull=0.115,
        muzzle=(0.29, -0.05, 0.07, 0.04),
        ear=(-0.07, 0.07, -0.03, -0.22, 0.05, 0.075),
        tail=(-0.42, 0.16, 0.045, 0.012),
        bib=0.0,
        fluff=0.003,
    ),
    "labrador": Breed(
        leg=(0.52, 0.075),
        length=0.68,
        rump=0.17,
        waist=0.15,
        chest=0.215,
        neck=(0.24, 0.3, 0.13),
        skull=0.145,
        muzzle=(0.25, -0.05, 0.085, 0.065),
        ear=(-0.07, 0.1, -0.04, -0.16, 0.055, 0.065),
        tail=(-0.4, -0.02, 0.06, 0.03),
        bib=0.15,
        fluff=0.004,
    ),
}

# Fur in shade, fur in light. `own`: one of the colours that dogs of any breed may have.
COATS = {
    "black": [((0.05, 0.05, 0.06), (0.24, 0.23, 0.24))],
    "brown": [((0.22, 0.12, 0.07), (0.52, 0.31, 0.18))],
    "white": [((0.55, 0.52, 0.48), (0.97, 0.95, 0.9))],
    "own": [
        ((0.48, 0.3, 0.12), (0.9, 0.68, 0.38)),
        ((0.45, 0.2, 0.08), (0.8, 0.45, 0.2)),
        ((0.28, 0.27, 0.27), (0.62, 0.6, 0.58)),
        ((0.5, 0.42, 0.33), (0.88, 0.78, 0.64)),
    ],
}
POSES = ("standing", "sitting", "running")


@dataclass(frozen=True)
class _Look:
    """How fur is coloured: its colours in shade and in light, those of its marks, and the kinds of
    marks."""

    shade: np.ndarray
    bright: np.ndarray
    mark_shade: np.ndarray
    mark_bright: np.ndarray
    patches: float
    has_bib: bool


class Dog:
    """One dog on a canvas: the positions of its joints, and how it is painted."""

    def __init__(self, canvas: Canvas, breed: str, coat: str, horizon: float, light: np.ndarray):
        self.canvas, self.light, draw = canvas, light, canvas.generator
        self.breed = _varied(BREEDS[breed], draw)
        self.pose, self.look = str(draw.choice(POSES)), _look(coat, draw)
        self._joints(draw)
        self._place(draw, horizon)

    def _joints(self, draw: np.random.Generator) -> None:
        body, pose = self.breed, self.pose
        stand = body.leg[0] + 0.55 * body.rump
        self.hip = np.array([0.0, stand])
        lift = {"standing": 0.0, "running": draw.normal(0.03, 0.03), "sitting": 0.28 * body.length}[
            pose
        ]
        if pose == "sitting":
            self.hip = np.array([0.0, body.rump * 0.95])
            lift += body.leg[0] + 0.5 * body.chest - self.hip[1]
        lift = min(lift, 0.85 * body.length)
        self.shoulder = self.hip + _by(np.sqrt(body.length**2 - lift**2), lift)
        nod = draw.normal(0, 0.18)
        turn = np.array([[np.cos(nod), -np.sin(nod)], [np.sin(nod), np.cos(nod)]])
        self.head = self.shoulder + turn @ np.array(body.neck[:2])
        tilt = draw.normal(-0.05, 0.22)
        self.tilt = np.array([[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]])
        self.nose = self.head + self.tilt @ np.array(body.muzzle[:2])

    def _place(self, draw: np.random.Generator, horizon: float) -> None:
        """The dog's coordinates of all pixels."""
        body = self.breed
        left, right = (
            self.hip[0] - body.rump + 0.6 * min(body.tail[0], 0),
            self.nose[0] + body.muzzle[3],
        )
        top = self.head[1] + body.skull + max(body.ear[3], 0)
        self.scale = draw.uniform(0.62, 0.86) / max(right - left, 1.1 * top)
        wide = (right - left) * self.scale
        middle = draw.uniform(0.5 * wide + 0.02, 0.98 - 0.5 * wide)
        self.feet = float(
            np.clip(draw.uniform(0.8, 0.96), horizon + 0.1 + 0.15 * top * self.scale, 0.97)
        )
        side = draw.choice([-1, 1])
        self.x = ((self.canvas.x - middle) * (side / self.scale) + (left + right) / 2).astype(
            np.float32
        )
        self.y = ((self.feet - self.canvas.y) / self.scale).astype(np.float32)
        self.side, self.at, self.middle = side, middle, (left + right) / 2
        size = self.canvas.size
        self.fur = 0.06 * self.canvas.noise(0.5 * size, 0.3 * size) + 0.05 * self.canvas.cloud(
            14, 2
        )
        self.fluff, self.patches = (
            self.canvas.noise(0.6 * size, 0.6 * size),
            self.canvas.cloud(4, 2),
        )

    def paint(self) -> None:
        body = self.breed
        self._shadow()
        legs = [self._leg(*where) for where in self._stance()]
        for leg in legs[:2]:  # those on the far side
            self._fur([leg], dim=0.62)
        tail = self.hip + _by(-0.7 * body.rump, 0.45 * body.rump)
        tip = tail + self.tilt @ np.array(body.tail[:2])
        bend = (tail + tip) / 2 - _by(0, 0.1 * abs(body.tail[0]))
        self._fur([[(*tail, body.tail[2]), (*bend, 0.85 * body.tail[2]), (*tip, body.tail[3])]])
        if body.two_ears:
            self._ear((0.09, -0.005), dim=0.75)
        self._fur([self._trunk(), self._head()], marks=True)
        for leg in legs[2:]:
            self._fur([leg], soft=True)
        self._ear((0.0, 0.0))
        self._face()

    def _trunk(self) -> list[Point]:
        body, hip, shoulder = self.breed, self.hip, self.shoulder
        middle = (hip + shoulder) / 2 + (0, 0.15 * (body.rump - body.waist))
        return [(*hip, body.rump), (*middle, body.waist), (*shoulder, body.chest)]

    def _head(self) -> list[Point]:
        body, back = (
            self.breed,
            self.shoulder + _by(0.05 * self.breed.length, 0.25 * self.breed.chest),
        )
        start = self.head + self.tilt @ _by(0.45 * body.skull, -0.15 * body.skull)
        return [
            (*back, body.neck[2] * 1.15),
            (*self.head, body.skull),
            (*start, body.muzzle[2]),
            (*self.nose, body.muzzle[3]),
        ]

    def _stance(self) -> list[tuple[np.ndarray, float, bool]]:
        """For each leg, the far ones first: its joint, how far its foot is ahead of it, and whether
        it is a hind leg."""
        draw, body = self.canvas.generator, self.breed
        hind, fore = (
            self.hip - _by(0.15 * body.rump, 0),
            self.shoulder + _by(0.1 * body.chest, -0.25 * body.chest),
        )
        swing = {"standing": 0.1, "sitting": 0.06, "running": 0.75}[self.pose] * (
            body.leg[0] + 0.12
        )
        steps = swing * draw.normal(0, 0.35, 4) + (
            0
            if self.pose != "running"
            else swing * np.array([-0.75, 0.75, -0.55, 0.9]) * draw.choice([-1, 1])
        )
        wide = 0.28 * body.chest
        return [
            (hind + _by(0.35 * wide, 0), steps[0], True),
            (fore + _by(wide, 0), steps[1], False),
            (hind, steps[2], True),
            (fore - _by(0.4 * wide, 0), steps[3], False),
        ]

    def _leg(self, joint: np.ndarray, step: float, hind: bool) -> list[Point]:
        body, thick = self.breed, self.breed.leg[1]
        raised = abs(step) * 0.35 if self.pose == "running" else 0.0
        foot = np.array([joint[0] + step, 0.45 * thick + raised])
        if hind and self.pose == "sitting":
            knee, foot = joint + _by(0.9 * body.rump, 0.05), joint + _by(0.75 * body.rump, 0)
            return [
                (*joint, 1.0 * body.rump),
                (*knee, 1.1 * thick),
                (foot[0], 0.5 * thick, 0.75 * thick),
                (foot[0] + 1.3 * thick, 0.45 * thick, 0.6 * thick),
            ]
        knee = (joint + foot) / 2 + _by(-0.22 if hind else 0.05, 0.0) * (body.leg[0] + 0.05)
        top = 0.75 * body.rump if hind else 0.5 * body.chest
        return [
            (*joint, top),
            (*knee, thick),
            (*foot, 0.72 * thick),
            (foot[0] + 0.8 * thick, foot[1], 0.62 * thick),
        ]

    def _fur(
        self,
        chains: Sequence[list[Point]],
        dim: float = 1.0,
        marks: bool = False,
        soft: bool = False,
    ) -> None:
        """Chains of rods as one lit body. soft: without a hard upper edge, for a leg that joins the
        body."""
        look, part = self.look, self._part([point for chain in chains for point in chain])
        canvas = Canvas(self.canvas.pixels[part], self.canvas.generator, self.canvas.size)
        x, y = self.x[part], self.y[part]
        total, radius = np.float32(0), np.float32(0)
        for chain in chains:
            for start, end in pairwise(chain):
                distance, around = capsule(x, y, start, end)
                near = np.exp(-28 * distance)
                total, radius = total + near, radius + near * around
        radius, distance = radius / total, -np.log(total) / 28
        height = np.sqrt((radius**2 - (radius + distance).clip(0) ** 2).clip(0)) * float(self.scale)
        under = (
            ((y - float(chains[0][0][1])) / max(self.breed.chest, 0.1)).clip(-1, 1) * 0.12
            if marks
            else 0.0
        )
        lit = (
            (canvas.shade(height, self.light) * 0.85 + 0.12 + under + self.fur[part]) * dim
        ).clip(0, 1.1)[..., None]
        colour = look.shade + lit * (look.bright - look.shade)
        if marks:
            marked = self._marked(x, y, self.patches[part])[..., None]
            colour = colour + marked * (
                look.mark_shade + lit * (look.mark_bright - look.mark_shade) - colour
            )
        alpha = canvas.inside(
            (distance + self.breed.fluff * self.fluff[part]) * float(self.scale), 1.4
        )
        if soft:
            joint = chains[0][0]
            alpha = alpha * (
                (float(joint[1] + 0.35 * joint[2]) - y) / max(0.9 * joint[2], 0.05)
            ).clip(0, 1)
        canvas.paint(alpha, colour * (0.35 + 0.65 * dim))

    def _part(self, points: list[Point]) -> tuple[slice, slice]:
        """The rows and columns of the image that rods through these points may reach."""
        around = np.array(points)
        margin = around[:, 2:].max() * 1.3 + 0.05
        low, high = around[:, :2].min(0) - margin, around[:, :2].max(0) + margin
        across = (
            np.sort((np.array([low[0], high[0]]) - self.middle) * self.side) * self.scale + self.at
        )
        down = self.feet - np.array([high[1], low[1]]) * self.scale
        (left, right), (top, bottom) = (
            (np.array(ends) * self.canvas.size).clip(0, self.canvas.size).astype(int)
            for ends in (across, down)
        )
        return slice(top, max(bottom + 1, top + 3)), slice(left, max(right + 1, left + 3))

    def _marked(self, x: np.ndarray, y: np.ndarray, patches: np.ndarray) -> np.ndarray:
        """Where fur has the colour of its marks: random patches, and the breed's white on chest and
        muzzle."""
        body, look = self.breed, self.look
        marked = (patches * 3 - look.patches).clip(0, 1)
        if look.has_bib and body.bib:
            chest = ellipse(
                x, y, self.shoulder + _by(0.75 * body.chest, -0.1), (0.8 * body.chest, 0.3)
            )
            muzzle = ellipse(
                x, y, (self.nose + self.head) / 2 + _by(0.05, -0.05), (0.2, 0.8 * body.muzzle[2])
            )
            white = (0.5 - np.minimum(chest, muzzle) / 0.06).clip(0, 1)
            marked = np.maximum(marked, body.bib * white)
        return marked

    def _ear(self, offset: tuple[float, float], dim: float = 0.0) -> None:
        ear = self.breed.ear
        dim = dim or (
            0.9 if self.breed.two_ears else 0.66
        )  # a hanging ear has its back to the light
        joint = self.head + self.tilt @ (np.array(ear[:2]) + offset)
        tip = joint + self.tilt @ np.array(ear[2:4])
        around, _ = capsule(self.x, self.y, (*joint, ear[4]), (*tip, ear[5]))
        self.canvas.paint(
            self.canvas.inside((around - 0.014) * self.scale, 3) * 0.45, self.look.shade * 0.5
        )
        self._fur([[(*joint, ear[4]), (*tip, ear[5])]], dim=dim)
        if self.breed.two_ears:  # they are upright, so their inside is visible
            inner, _ = capsule(
                self.x,
                self.y,
                (*(joint + 0.2 * (tip - joint)), 0.45 * ear[4]),
                (*(joint + 0.75 * (tip - joint)), 0.3 * ear[5]),
            )
            self.canvas.paint(self.canvas.inside(inner * self.scale, 2) * 0.55, (0.75, 0.52, 0.47))

    def _face(self) -> None:
        canvas, body = self.canvas, self.breed
        if body.jowl:
            hang = self.nose + self.tilt @ _by(-0.05, -0.08)
            self._fur(
                [[(*hang, body.jowl), (*(hang + _by(0.02, -0.06)), 0.8 * body.jowl)]], marks=True
            )
        tip = self.nose + self.tilt @ _by(0.65 * body.muzzle[3], 0.45 * body.muzzle[3])
        canvas.paint(
            canvas.inside(ellipse(self.x, self.y, tip, (0.034, 0.028)) * self.scale),
            (0.06, 0.05, 0.05),
        )
        mouth, _ = capsule(
            self.x,
            self.y,
            (*(self.nose + _by(0.3 * body.muzzle[3], -0.35 * body.muzzle[3])), 0.006),
            (*(self.head + self.tilt @ _by(0.6 * body.skull, -0.75 * body.skull)), 0.006),
        )
        canvas.paint(canvas.inside(mouth * self.scale, 1.5) * 0.6, self.look.shade * 0.35)
        if canvas.generator.random() < 0.4:  # it pants
            tongue = self.nose + self.tilt @ _by(-0.02, -1.1 * body.muzzle[3])
            drop, _ = capsule(
                self.x, self.y, (*tongue, 0.028), (*(tongue + _by(0.01, -0.06)), 0.024)
            )
            canvas.paint(canvas.inside(drop * self.scale), (0.82, 0.36, 0.4))
        eye = self.head + self.tilt @ _by(0.5 * body.skull, 0.3 * body.skull)
        canvas.paint(
            canvas.inside((ellipse(self.x, self.y, eye, (0.036, 0.033))) * self.scale, 2) * 0.5,
            self.look.shade * 0.6,
        )
        canvas.paint(
            canvas.inside(ellipse(self.x, self.y, eye, (0.024, 0.024)) * self.scale),
            (0.07, 0.04, 0.03),
        )
        glint = np.hypot(self.x - eye[0] - 0.008, self.y - eye[1] - 0.009) - 0.008
        canvas.paint(canvas.inside(glint * self.scale) * 0.9, (1.0, 1.0, 1.0))

    def _shadow(self) -> None:
        """On the ground below."""
        canvas, middle = self.canvas, (self.hip[0] + self.shoulder[0]) / 2
        radii = (0.62 * (self.shoulder[0] - self.hip[0]) + self.breed.chest + 0.1, 0.075)
        flat = ellipse(self.x, self.y, (middle - 0.3 * self.side * self.light[0], 0.0), radii)
        canvas.paint((0.5 - flat / 0.06).clip(0, 1) * 0.5, canvas.pixels.mean((0, 1)) * 0.2)


def _by(right: float, up: float) -> np.ndarray:
    return np.array([right, up])


def _varied(breed: Breed, draw: np.random.Generator) -> Breed:
    """The same breed a little longer, stouter or taller, since no two dogs are alike."""
    stout, long = draw.normal(1, 0.05), draw.normal(1, 0.05)
    return replace(
        breed,
        length=breed.length * long,
        rump=breed.rump * stout,
        waist=breed.waist * stout,
        chest=breed.chest * stout,
        leg=(breed.leg[0] * draw.normal(1, 0.06), breed.leg[1] * stout),
        skull=breed.skull * draw.normal(1, 0.04),
    )


def _look(coat: str, draw: np.random.Generator) -> _Look:
    def colours(name: str) -> np.ndarray:
        found = np.array(COATS[name][draw.integers(len(COATS[name]))])
        return (found * draw.normal(1, 0.08) + draw.normal(0, 0.015, 3)).clip(0.02, 1)

    shade, bright = colours(coat)
    mark_shade, mark_bright = colours(
        "white" if coat != "white" else str(draw.choice(["brown", "black", "own"]))
    )
    return _Look(
        shade,
        bright,
        mark_shade,
        mark_bright,
        draw.uniform(1.0, 4.5) + 2 * (coat == "white"),
        coat != "white" and draw.random() < 0.85,
    )
