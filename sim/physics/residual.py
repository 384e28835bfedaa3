"""What a plant gets wrong, learned from a flight with truth (Swift, Methods, "Residual dynamics model", eq. 11), and its file.

`lacking` flies a plant along a flight, tick by tick from the true state with the flight's own commands: what its velocity
misses, it lacks. That is of this very plant, so that aerodynamics that it has are not counted twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from link.messages import AttitudeTarget
from sim.physics.observation import ObservationModel, Scaler, features
from sim.physics.plant import RIGID, P, Q, Residual, V
from sim.physics.setting import Setting, make_plant
from tracks.track import Start
from vehicle.errors import UserError
from vehicle.files import read_arrays, reading, write_arrays
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

NEIGHBOURS = 5
WINDOW_S = 0.05  # of one sample: the paper's 1000 samples in 50 s
SETTLE_S = 0.3  # in which motors and flight controller come to what they really do
LEFT_M = 0.1  # from where a flight begins: what stands on its pad tells nothing
BLOW_M_S2 = 100.0  # more than any air does: a contact


class ResidualAcceleration:
    """Acceleration that a model lacks, world axes: a `Residual` for the plant. The mean of the five nearest neighbours."""

    def __init__(self, x: Array, c: Array, accel: Array):
        """States x (N, >= 10), commanded thrusts c (N,) and accelerations (N, 3), measured minus modelled, m/s^2.

        Raises:
            ValueError: too few, of other shapes, or not finite.
        """
        if len(x) < NEIGHBOURS:
            raise ValueError(f"{len(x)} samples, at least {NEIGHBOURS} are needed")
        if np.shape(c) != (len(x),) or np.shape(accel) != (len(x), 3) or not np.isfinite(accel).all():
            raise ValueError(f"{len(x)} states want thrusts ({len(x)},) and accelerations ({len(x)}, 3), all finite")
        from scipy.spatial import KDTree  # slow to load, and most simulators have no residual

        self.x, self.c, self.accel = x, c, accel
        z = np.column_stack([features(x), c])
        self._scaler = Scaler.of(z)
        self._tree = KDTree(self._scaler(z))

    def __call__(self, _: float, x: Array, c: float) -> Array:
        return self.many(x, np.array([c]))[0]

    def many(self, x: Array, c: Array) -> Array:
        """(N, 3) for states (N, >= 10) and commanded thrusts (N,): what `Batch.step` takes."""
        _, nearest = self._tree.query(self._scaler(np.column_stack([features(x), c])), NEIGHBOURS)
        return np.asarray(self.accel[nearest].mean(axis=1))


def together(*parts: Residual | None) -> Residual | None:
    """The sum of those that are there."""
    found = [part for part in parts if part is not None]
    if len(found) < 2:
        return found[0] if found else None
    return lambda t, x, c: np.sum([part(t, x, c) for part in found], axis=0)


class _Told:
    """A residual of zero that remembers the thrust that is commanded."""

    c = 0.0

    def __call__(self, _: float, __: Array, c: float) -> Array:
        self.c = c
        return np.zeros(3)


def lacking(
    t: Array, x: Array, commands: Iterable[tuple[float, AttitudeTarget]], vehicle: Vehicle, setting: Setting
) -> tuple[Array, Array, Array]:
    """States (N, 13), commanded thrusts (N,) and accelerations (N, 3) that the plant of a setting lacks, world, m/s^2.

    Args:
        t: (M,) times in s, rising, of the true states.
        x: (M, 13) true pose and motion, as the first blocks of RATES_X.
        commands: of that flight, by the time at which they were received.

    Raises:
        UserError: the vehicle cannot fly in this setting.
    """
    told = _Told()
    plant = make_plant(vehicle, Start((0.0, 0.0, 0.0), 0.0), setting, None, told)
    plant.reset(float(t[0]))
    plant.armed = True
    for at, target in commands:
        plant.command(at, target)
    plant.place(x[0, P], x[0, Q], x[0, V])
    rows, missed, window, left = list[tuple[Array, float, Array]](), np.zeros(3), list[tuple[Array, float]](), False
    begin = float(t[0])
    for i in range(len(t) - 1):
        plant.x[RIGID] = x[i]
        plant.advance(float(t[i + 1]))
        missed += x[i + 1, V] - plant.x[V]
        window.append((x[i], told.c))
        if t[i + 1] - begin < WINDOW_S - 1e-6:
            continue
        accel = missed / (t[i + 1] - begin)
        left = left or bool(np.linalg.norm(x[i + 1, P] - x[0, P]) > LEFT_M)
        if left and begin - t[0] >= SETTLE_S and np.linalg.norm(accel) < BLOW_M_S2:
            rows.append((*window[len(window) // 2], accel))
        missed, window, begin = np.zeros(3), [], float(t[i + 1])
    states, thrusts, accel = zip(*rows, strict=True) if rows else ((), (), ())
    return np.reshape(states, (-1, 13)), np.array(thrusts), np.reshape(accel, (-1, 3))


@dataclass(frozen=True)
class Residuals:
    """A residual file: what was learned of one vehicle's odometry and of one of its plants, or what its odometry shall err by."""

    vehicle: str  # its hash
    aerodynamic: bool  # of which plant the acceleration is
    acceleration: ResidualAcceleration | None  # None: every plant is right
    observation: ObservationModel | None = None  # None: the flights had no estimates

    def require(self, vehicle: Vehicle, setting: Setting, where: str) -> None:
        """Raises UserError where another plant would fly: it has aerodynamics twice, or not at all."""
        if self.vehicle != vehicle.hash:
            raise UserError(f"{where}: was fitted to another vehicle than {vehicle.name}, or to other facts of it")
        if self.acceleration is not None and self.aerodynamic != setting.aerodynamic:
            names = {True: "grey-box model (settings 3 and 4)", False: "`rates` model (settings 1 and 2)"}
            mine, asked = names[self.aerodynamic], names[setting.aerodynamic]
            raise UserError(
                f"{where}: was fitted against the {mine}, and the {asked} would fly; fit it against that one"
            )

    def save(self, path: Path) -> None:
        """Writes one .npz file. Raises UserError when it cannot be written."""
        facts = {"vehicle": np.array(self.vehicle), "aerodynamic": np.array(self.aerodynamic)}
        if (of := self.acceleration) is not None:
            facts |= {"acceleration_x": of.x, "acceleration_c": of.c, "acceleration": of.accel}
        seen = self.observation.arrays() if self.observation else {}
        write_arrays(path, facts | {f"observation_{name}": array for name, array in seen.items()})

    @classmethod
    def load(cls, path: Path) -> "Residuals":
        """Raises UserError when the file is missing or no residual file."""
        file = read_arrays(path)
        with reading(path, "no residual file; make one with race-bench fit-residuals"):
            acceleration = None
            if "acceleration" in file:
                acceleration = ResidualAcceleration(
                    file["acceleration_x"], file["acceleration_c"], file["acceleration"]
                )
            seen = {name.removeprefix("observation_"): a for name, a in file.items() if name.startswith("observation_")}
            observation = ObservationModel.from_arrays(**seen) if seen else None
            return cls(str(file["vehicle"]), bool(file["aerodynamic"]), acceleration, observation)
