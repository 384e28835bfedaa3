"""Residual dynamics model, learned from a flight with ground truth (Swift, Methods, eq. 11), and the residual file.

`residual_accelerations` steps a plant along a flight, each tick from the true state with the recorded commands; the difference
in velocity gives the residual acceleration. It is specific to that plant, so that modelled aerodynamics are not counted twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gate_racer.link.messages import AttitudeTarget
from gate_racer.sim.physics.observation import ObservationModel, Scaler, features
from gate_racer.sim.physics.plant import RIGID, P, Q, UnmodelledAcceleration, V
from gate_racer.sim.physics.setting import Setting, make_plant
from gate_racer.tracks.track import Start
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.files import read_arrays, reading, write_arrays
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

NEIGHBOURS = 5  # nearest samples averaged, as in the paper
WINDOW_S = 0.05  # s, averaging window of one sample: the paper's 1000 samples in 50 s
SETTLE_S = 0.3  # s, time until the unmeasured states of motors and flight controller have converged
LEFT_M = 0.1  # m from the start, after which samples count: a vehicle on its pad carries no information
BLOW_M_S2 = 100.0  # m/s^2, above this a residual is a contact and not aerodynamics


class ResidualAcceleration:
    """`UnmodelledAcceleration` of a plant: mean of the five nearest neighbours in the training samples."""

    def __init__(self, x: Array, c: Array, accel: Array):
        """Store states x (N, >= 10), commanded thrusts c (N,) and accelerations (N, 3), measured minus modelled, m/s^2.

        Raises:
            ValueError: too few samples, shapes do not match, or a value is not finite.
        """
        if len(x) < NEIGHBOURS:
            raise ValueError(f"{len(x)} samples: expected at least {NEIGHBOURS}")
        if np.shape(c) != (len(x),) or np.shape(accel) != (len(x), 3) or not np.isfinite(accel).all():
            raise ValueError(
                f"{len(x)} states: expected thrusts ({len(x)},) and accelerations ({len(x)}, 3), all finite"
            )
        from scipy.spatial import KDTree  # slow to load, and most simulators have no residual

        self.x, self.c, self.accel = x, c, accel
        z = np.column_stack([features(x), c])
        self._scaler = Scaler.of(z)
        self._tree = KDTree(self._scaler(z))

    def __call__(self, _: float, x: Array, c: float) -> Array:
        return self.many(x, np.array([c]))[0]

    def many(self, x: Array, c: Array) -> Array:
        """Return accelerations (N, 3) at states (N, >= 10) and commanded thrusts (N,), as `Batch.step` takes them."""
        _, nearest = self._tree.query(self._scaler(np.column_stack([features(x), c])), NEIGHBOURS)
        return np.asarray(self.accel[nearest].mean(axis=1))


def together(*parts: UnmodelledAcceleration | None) -> UnmodelledAcceleration | None:
    """Return the sum of the residuals that are not None."""
    found = [part for part in parts if part is not None]
    if len(found) < 2:
        return found[0] if found else None
    return lambda t, x, c: np.sum([part(t, x, c) for part in found], axis=0)


class _CommandedThrustProbe:
    """Zero residual that records the commanded thrust, m/s^2."""

    c = 0.0

    def __call__(self, _: float, __: Array, c: float) -> Array:
        self.c = c
        return np.zeros(3)


def residual_accelerations(
    t: Array, x: Array, commands: Iterable[tuple[float, AttitudeTarget]], vehicle: Vehicle, setting: Setting
) -> tuple[Array, Array, Array]:
    """Return states (N, 13), commanded thrusts (N,) and residual accelerations (N, 3) of a setting's plant, m/s^2, world.

    Args:
        t: (M,) s, increasing times of the true states.
        x: (M, 13) true pose and motion, as the first blocks of RATES_X.
        commands: commands of that flight with the time of their reception.

    Raises:
        UserError: the vehicle cannot fly in this setting.
    """
    probe = _CommandedThrustProbe()
    plant = make_plant(vehicle, Start((0.0, 0.0, 0.0), 0.0), setting, None, probe)
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
        window.append((x[i], probe.c))
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
    """Contents of a residual file: the residual models of one vehicle's plant and of its odometry, learned or specified."""

    vehicle: str  # hash of the vehicle
    aerodynamic: bool  # whether the acceleration belongs to the grey-box plant
    acceleration: ResidualAcceleration | None  # None: no residual acceleration
    observation: ObservationModel | None = None  # None: no estimates were available

    def require(self, vehicle: Vehicle, setting: Setting, where: str) -> None:
        """Check vehicle and plant. Raises UserError for another plant, whose aerodynamics would count twice or not at all."""
        if self.vehicle != vehicle.hash:
            raise UserError(f"{where}: was fitted to another vehicle than {vehicle.name}, or to other parameters of it")
        if self.acceleration is not None and self.aerodynamic != setting.aerodynamic:
            names = {True: "grey-box model (settings 3 and 4)", False: "`rates` model (settings 1 and 2)"}
            fitted, flown = names[self.aerodynamic], names[setting.aerodynamic]
            raise UserError(f"{where}: was fitted to the {fitted}, but the {flown} is simulated: fit it to that one")

    def save(self, path: Path) -> None:
        """Write one .npz file. Raises UserError when it cannot be written."""
        facts = {"vehicle": np.array(self.vehicle), "aerodynamic": np.array(self.aerodynamic)}
        if (of := self.acceleration) is not None:
            facts |= {"acceleration_x": of.x, "acceleration_c": of.c, "acceleration": of.accel}
        seen = self.observation.arrays() if self.observation else {}
        write_arrays(path, facts | {f"observation_{name}": array for name, array in seen.items()})

    @classmethod
    def load(cls, path: Path) -> "Residuals":
        """Read a residual file. Raises UserError when it is missing or not a residual file."""
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
