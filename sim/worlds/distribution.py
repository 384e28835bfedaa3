"""Distributions of worlds, and the syntax by which a world is named.

A world's file (YAML) holds fixed deviations (`world`) and random factors. A world is named by FILE[@TIMES][:SEED[:FACTOR+]]:

    as_believed                      no deviations
    unknown:7                        all factors drawn jointly, with seed 7
    unknown:7:camera.yaw_deg+        this factor alone, two standard deviations up (or - down); for a vector or for gates
                                     the direction is drawn with the seed
    unknown@2:7                      all factors, twice as wide
    mine.yaml                        a file of the user's, such as the one written beside a flight log

Each factor has its own random stream, so that adding or removing a factor leaves the draws of the others unchanged.
"""

import math
import re
import zlib
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.config import load_named
from gate_racer.common.errors import UserError
from gate_racer.sim.worlds.world import AS_BELIEVED, NAMES, Deviations, World
from gate_racer.tracks.gate import SAME_PLACE_M
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

FOLDER = Path(__file__).parent
SIGMAS = 2.0  # standard deviations of a factor that is varied alone (chosen)
LEAST = 0.1  # least scale in a widened distribution: no vehicle has a drag or a lag below zero (chosen)
PER_GATE = {"course.gate_moved_m": 3, "course.gate_turned_deg": 2}  # numbers per gate


@dataclass(frozen=True)
class Factor:
    """Random factor of a distribution: uniform in `range`, or with a width of `sigma` about the model's value.

    The latter is normal; `tails` makes it Student's t, `skew` Azzalini's skew-normal, and `cause` correlates it with the other
    factors of that cause. `range` then bounds its values.
    """

    of: str  # name in `Deviations`: section.field
    why: str  # source of the width
    sigma: float | None = None  # standard deviation of every number, before `tails` and `skew`
    range: tuple[float, float] | None = None  # values
    tails: float | None = None  # degrees of freedom
    skew: float = 0.0  # between -1, only lower values, and 1, only higher ones
    cause: str = ""  # what several factors have in common, such as a load of the machine
    share: float = 0.0  # correlation with it; the vectors of all gates have one cause

    def __post_init__(self) -> None:
        if self.of not in NAMES:
            raise ValueError(f"of: unknown deviation {self.of!r}; known: {', '.join(NAMES)}")
        if self.sigma is None and (self.range is None or self.tails is not None or self.skew or self.cause):
            raise ValueError(f"{self.of}: needs sigma, or range alone")
        if (self.sigma is not None and self.sigma <= 0) or (self.range is not None and self.range[0] >= self.range[1]):
            raise ValueError(f"{self.of}: sigma must be positive, and range must increase")
        if (self.tails is not None and self.tails <= 0) or max(abs(self.skew), abs(self.share)) > 1:
            raise ValueError(f"{self.of}: tails must be positive, skew and share must lie between -1 and 1")
        if bool(self.cause) != bool(self.share):
            raise ValueError(f"{self.of}: cause and share belong together")

    @property
    def signs(self) -> str:
        """Signs with which the factor can be varied alone."""
        return "+-" if self.sigma is not None else "+"

    def widened(self, times: float) -> "Factor":
        """Return the factor that deviates `times` as far from the model's value; scales stay above `LEAST`."""
        believed = float(np.ravel(_believed(self.of))[0])
        low, high = (believed + times * (end - believed) for end in self.range or (-math.inf, math.inf))
        sigma = None if self.sigma is None else times * self.sigma
        return replace(self, sigma=sigma, range=(max(low, LEAST) if believed == 1 else low, high))

    def drawn(self, seed: int, shape: tuple[int, ...]) -> Array:
        """Return deviations from the model's value, of this shape: one number or vector, or one vector per gate (G, n)."""
        rng = _stream(self.of, seed)
        if self.sigma is None:
            assert self.range is not None
            return rng.uniform(*self.range, shape) - _believed(self.of)
        z = rng.standard_normal(shape)
        if self.cause:
            common = _stream(f"cause {self.cause}", seed).standard_normal(3)[: shape[-1] if shape else 1]
            z = self.share * (common if shape else common[0]) + math.sqrt(1 - self.share**2) * z
        if self.skew:
            side = np.abs(rng.standard_normal(shape))
            z = self.skew * side + math.sqrt(1 - self.skew**2) * z
        if self.tails is not None:
            z = z * np.sqrt(self.tails / rng.chisquare(self.tails, (*shape[:-1], 1) if shape else ()))
        return self.bounded(self.sigma * z)

    def bounded(self, step: Array | float) -> Array:
        """Return deviations within `range`."""
        low, high = np.subtract.outer(self.range or (-math.inf, math.inf), _believed(self.of))
        return np.clip(step, low, high)


@dataclass(frozen=True)
class WorldFile:
    name: str
    source: str = ""
    world: Deviations = AS_BELIEVED
    factors: tuple[Factor, ...] = ()

    def __post_init__(self) -> None:
        names = [factor.of for factor in self.factors]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"factors: {twice[0]} appears twice")

    def jointly(self, track: Track, seed: int) -> Deviations:
        deviations = self.world
        for factor in self.factors:
            deviations = _stepped(deviations, factor.of, factor.drawn(seed, _shape(factor.of, track)), track)
        return deviations

    def alone(self, name: str, sign: str, track: Track, seed: int) -> Deviations:
        """Return the deviations with one factor off by `SIGMAS`, or at the far end of its range. Raises UserError if unknown."""
        factor = next((one for one in self.factors if one.of == name), None)
        if factor is None or sign not in factor.signs:
            known = ", ".join(one.of + s for one in self.factors for s in one.signs)
            raise UserError(f"world {self.name}: no factor {name + sign!r}; known: {known}")
        shape = _shape(name, track)
        if factor.sigma is None:
            far = max((end - _believed(name) for end in factor.range or ()), key=np.linalg.norm)
            return _stepped(self.world, name, np.broadcast_to(far, shape), track)
        step = np.ones(shape)
        if shape:
            step = _stream(name, seed).standard_normal(shape)
            step /= np.linalg.norm(step, axis=-1, keepdims=True)
        step = factor.bounded((1 if sign == "+" else -1) * SIGMAS * factor.sigma * step)
        return _stepped(self.world, name, step, track)


def load_worlds(name: str) -> WorldFile:
    """Load a world's file by name (`unknown`) or path, with factors several times as wide after @ (`unknown@2`).
    Raises UserError where the file is missing or malformed."""
    scaled = re.fullmatch(r"(.+)@(\d{1,3}(?:\.\d{1,6})?)", name)
    if scaled is None:
        return load_named(name, FOLDER, WorldFile, "world")
    file, times = load_named(scaled[1], FOLDER, WorldFile, "world"), float(scaled[2])
    if times <= 0:
        raise UserError(f"world {name}: factors must be more than 0 times as wide")
    return replace(file, name=f"{file.name}@{scaled[2]}", factors=tuple(one.widened(times) for one in file.factors))


def resolve(reference: str, track: Track, vehicle: Vehicle) -> World:
    """Return the world that `reference`, FILE[@TIMES][:SEED[:FACTOR+]] as above, means for a modelled track and vehicle.
    Raises UserError for no such world, one that does not fit track or vehicle, or a draw that cannot be."""
    name, *rest = reference.split(":")
    file = load_worlds(name)
    if len(rest) > 2 or (rest and not rest[0].isdecimal()):
        raise UserError(f"--world {reference}: expected FILE[:SEED[:FACTOR+]], with a seed of digits")
    seed = int(rest[0]) if rest else 0
    factor = rest[1] if len(rest) == 2 else ""
    try:
        deviations = file.alone(factor[:-1], factor[-1:], track, seed) if factor else file.jointly(track, seed)
    except ValueError as error:
        raise UserError(f"world {reference}: drawn with seed {seed}: {error}; `range` bounds a factor") from None
    label = ":".join([file.name, str(seed), *rest[1:]]) if file.factors else file.name
    return World.of(label, deviations, track, vehicle)


def _stream(name: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _shape(name: str, track: Track) -> tuple[int, ...]:
    """Return the shape of the numbers that a factor draws."""
    return (len(track.gates), PER_GATE[name]) if name in PER_GATE else _believed(name).shape


def _believed(name: str) -> Array:
    """Return the value of a factor that does not deviate."""
    return np.zeros(()) if name in PER_GATE else np.asarray(attrgetter(name)(AS_BELIEVED))


def _stepped(deviations: Deviations, name: str, step: Array | float, track: Track) -> Deviations:
    """Return the deviations with `step` added to a field. Gates of the course at the same place share one step."""
    value = attrgetter(name)(deviations)
    if name in PER_GATE:
        centres = np.array([gate.centre_m for gate in track.gates])
        near = np.linalg.norm(centres[:, None] - centres, axis=-1) < SAME_PLACE_M
        step = np.asarray(step)[near.argmax(1)]  # of the first gate at the place of each
        value = value or np.zeros_like(step)
    section, one = name.split(".")
    plain = _tuples((np.asarray(value) + step).tolist())
    return replace(deviations, **{section: replace(getattr(deviations, section), **{one: plain})})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
