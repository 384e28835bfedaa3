"""Observability and consistency of the error-state filter in unknown worlds, state by state:

    python benchmarks/filter_states.py --tracks vq1 vq2 --seeds 20

NEES per degree of freedom (Bar-Shalom, Li and Kirubarajan 2001, sec. 5.4) should be 1. The ratio of final to prior standard
deviation indicates the observability of a state; the shares are those of the manoeuvres in the decrease of its log standard
deviation: straight flight, or turning faster than `TURNING` mainly in roll, pitch or yaw. Worlds: `sim/worlds/unknown.yaml`.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from gate_racer.benchmarks.campaign.choice import CONTROLLERS, SETTINGS, PreparedCourse
from gate_racer.benchmarks.campaign.flight import LOOK, NoLog
from gate_racer.benchmarks.campaign.measure import EvaluationRecorder
from gate_racer.benchmarks.campaign.prepare import prepare
from gate_racer.estimation.eskf.error_state_estimator import ErrorStateEstimator
from gate_racer.estimation.eskf.filter_state import FilterState
from gate_racer.estimation.eskf.imu_samples import Agility
from gate_racer.estimation.eskf.noise import Noise, prior
from gate_racer.estimation.eskf.reprojection import mounted
from gate_racer.estimation.eskf.states import (
    ERROR,
    THETA,
    Nominal,
    P,
    V,
)
from gate_racer.link.profile import load_profile
from gate_racer.perception.association import Associator
from gate_racer.perception.rims import GateAppearance
from gate_racer.pilot.drivers.lockstep import fly_lockstep
from gate_racer.pilot.drivers.lockstep_perception import open_perception
from gate_racer.pilot.flight import CommandRecord
from gate_racer.pilot.make import make_racer
from gate_racer.pilot.records.result import Verdict
from gate_racer.sim.physics.plant import P as TRUE_P
from gate_racer.sim.physics.plant import Q as TRUE_Q
from gate_racer.sim.physics.plant import V as TRUE_V
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import World, rotation_vector
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.rotation import Array, conjugate, exp, log, matrix, normalised, product
from gate_racer.vehicle.vehicle import load_vehicle

MANOEUVRES = ("straight", "roll", "pitch", "yaw")
TURNING = 1.5  # rad/s, body rate above which a command counts as turning
NEES_EVERY = 10  # commands between samples of the NEES, since consecutive errors are correlated
NAMES = [
    "p",
    "v",
    "theta",
    "b_a",
    "b_g",
    "accel_delay",
    "s_a",
    "s_g",
    "yaw",
    "tilt",
    "roll",
    "focal",
    "centre",
    "radial",
    "arm",
    "delay",
    "readout",
    "lean",
]
OF_CAMERA = ["yaw", "tilt", "roll", "focal", "centre", "radial", "arm", "delay", "readout"]  # states of the camera


@dataclass
class LearnedStates:
    """Results of one flight by state: NEES per degree of freedom (M,), final over prior sigma, and its decrease by manoeuvre."""

    nees: dict[str, Array]
    left: dict[str, float]
    fell: dict[str, Array]  # (4,) decrease of ln sigma during each of `MANOEUVRES`


class FilterRecorder(EvaluationRecorder):
    """Recorder that stores the state of the whole filter at each command."""

    def __init__(self, track: Track, estimator: ErrorStateEstimator):
        super().__init__(NoLog(), track, estimator)  # type: ignore[arg-type]
        self._filter = estimator
        self.beliefs: list[FilterState] = []
        self.sigmas: list[Array] = []
        self.exposures: list[
            tuple[float, float]
        ] = []  # time of exposure, and its offset from the image's stamp on the IMU's clock, s

    def step(self, step: CommandRecord) -> None:
        """Record a command, and the filter state at its time."""
        super().step(step)
        belief = self._filter.present()
        self.sigmas.append(np.sqrt(belief.cov.diagonal()))
        self.beliefs.append(belief)


def constant_errors(world: World, seed: int) -> Nominal:
    """Return the true values of the constant states, as the simulator draws them, in the axes of the IMU."""
    off, vehicle, rng = world.deviations, world.vehicle, np.random.default_rng([seed, 0])
    turn = rotation_vector(off.imu.misalignment_deg)  # from the body's axes to the IMU's, the filter's
    bias_a = rng.normal(0, vehicle.imu.accel_bias_m_s2, 3) + off.imu.accel_bias_m_s2
    bias_g = rng.normal(0, vehicle.imu.gyro_bias_rad_s, 3) + off.imu.gyro_bias_rad_s
    blank, R_true = Nominal.at(0.0, np.zeros(3), np.zeros(3), np.array([1.0, 0, 0, 0])), matrix(exp(turn)).T
    R_true = R_true @ vehicle.camera.R_bc

    def miss(angles: Array) -> Array:
        at = blank.having(yaw=angles[0], tilt=angles[1], roll=angles[2])
        return np.asarray(mounted(believed.camera, at)[0].T - R_true).ravel()

    believed = load_vehicle(vehicle.name)
    yaw, tilt, roll = least_squares(miss, np.zeros(3)).x
    camera, lean = off.camera, product(conjugate(exp(turn)), exp(rotation_vector(off.imu.attitude_deg)))
    return blank.having(
        b_a=bias_a, b_g=bias_g, accel_delay=off.imu.accel_age_s, s_a=off.imu.accel_scale, s_g=off.imu.gyro_scale,
        yaw=yaw, tilt=tilt, roll=roll, focal=camera.focal_scale - 1, centre=[camera.cx_px, camera.cy_px],
        radial=[camera.k1, camera.k2], arm=camera.position_m, readout=off.view.readout_s, lean=log(normalised(lean)),
    )  # fmt: skip


def errors(belief: FilterState, known: Nominal, world: World, verdict: Verdict, delays: Array) -> Array:
    """Return true minus estimated states (N,); the entries of gates, their edges and the map's scale are not valid."""
    assert verdict.t is not None and verdict.x is not None
    x, t = belief.x, belief.x.t
    true = np.array([np.interp(t, verdict.t, column) for column in verdict.x.T])
    q_wi = product(true[TRUE_Q], exp(rotation_vector(world.deviations.imu.misalignment_deg)))
    error = known.values - x.values
    error[P], error[V] = true[TRUE_P] - x.p_wb, true[TRUE_V] - x.v_w
    error[THETA] = log(normalised(product(conjugate(x.q_wb), q_wi)))
    error[ERROR["delay"].at] = np.interp(t, delays[:, 0], delays[:, 1]) - x[ERROR["delay"].at]
    return np.asarray(error)


def fly(course: PreparedCourse, setting: str, seed: int) -> LearnedStates | None:
    """Fly once in `unknown:SEED`; None where the flight ended on the pad."""
    conditions, track, vehicle = SETTINGS[setting], course.track, course.vehicle
    world, profile, noise, look = (
        resolve(f"unknown:{seed}", track, vehicle),
        load_profile(conditions.profile),
        Noise(vehicle.imu),
        GateAppearance(),
    )
    estimator = ErrorStateEstimator(track.start, vehicle.camera, noise, look, Agility.of(vehicle))
    associator, controller = Associator(track.gates, vehicle.camera), CONTROLLERS["mpcc"](course)
    pilot = make_racer(track, vehicle, profile, estimator, associator, controller)
    watch, perception = (
        FilterRecorder(track, estimator),
        open_perception(conditions.camera, LOOK, world, vehicle.camera, profile, seed, conditions.detector),
    )
    see, pace = perception.see, 1 + 1e-6 * world.deviations.link.imu_drift_ppm

    def seen(exposure, t, expected):
        images = see(exposure, t, expected)
        watch.exposures.extend((exposure.t, pace * exposure.t - image.t) for image in images)
        return images

    perception.see = seen  # type: ignore[method-assign]
    _, verdict = fly_lockstep(pilot, world, profile, perception, seed, 1, watch, lambda _: None, conditions.simulated)
    if verdict.t is None or len(verdict.t) < 2 or not watch.exposures:
        return None
    known, delays = constant_errors(world, seed), np.array(watch.exposures)
    first, last = verdict.t[0], verdict.t[-1]
    judged = [b for b in watch.beliefs[::NEES_EVERY] if first <= b.x.t <= last]
    nees: dict[str, list[float]] = {name: [] for name in NAMES}
    for belief in judged:
        error = errors(belief, known, world, verdict, delays)
        for name in NAMES:
            own = ERROR[name].at
            nees[name].append(
                float(error[own] @ np.linalg.solve(belief.cov[own, own], error[own])) / (own.stop - own.start)
            )
    sigma0 = np.sqrt(prior(noise, look, track.start.q_wb).diagonal())
    fell = {name: np.zeros(len(MANOEUVRES)) for name in OF_CAMERA}
    for belief, before, after in zip(watch.beliefs, watch.sigmas, watch.sigmas[1:], strict=False):
        k = manoeuvre(belief.x.rates(belief.reading))
        for name in OF_CAMERA:
            own = ERROR[name].at
            fell[name][k] += float(np.log(before[own] / after[own]).mean())
    left = {
        name: float((watch.sigmas[-1][ERROR[name].at] / sigma0[ERROR[name].at]).mean())
        for name in NAMES
        if name not in "pv"
    }
    return LearnedStates({name: np.array(values) for name, values in nees.items()}, left, fell)


def manoeuvre(omega: Array) -> int:
    """Return the index into `MANOEUVRES` for body rates omega (3,), rad/s."""
    axis = int(np.abs(omega).argmax())
    return 1 + axis if abs(omega[axis]) > TURNING else 0


def table(flights: list[LearnedStates]) -> str:
    """Return a Markdown table with a row per state."""
    lines = [
        f"| state | NEES / dof | left of the prior | {' | '.join(MANOEUVRES)} |",
        "|---" * (3 + len(MANOEUVRES)) + "|",
    ]
    for name in NAMES:
        mean = np.mean([flight.nees[name].mean() for flight in flights])
        left = f"{100 * np.mean([flight.left[name] for flight in flights]):.0f} %" if name not in "pv" else "-"
        fell = np.mean([flight.fell[name] for flight in flights], axis=0) if name in OF_CAMERA else None
        shares = ["-"] * len(MANOEUVRES) if fell is None else [f"{100 * share:.0f} %" for share in fell / fell.sum()]
        lines.append(f"| `{name}` | {mean:.1f} | {left} | {' | '.join(shares)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table of each track."""
    parser = argparse.ArgumentParser(description="NEES and observability of the filter's states in unknown worlds.")
    parser.add_argument("--tracks", nargs="+", default=["vq1"])
    parser.add_argument("--setting", default="dcl-projected")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--plans", type=Path, default=Path("plans"))
    a = parser.parse_args()
    a.plans.mkdir(exist_ok=True)
    for name in a.tracks:
        course = prepare(load_track(f"tracks/{name}.yaml"), load_vehicle("dcl"), 1, False, a.plans, print)
        flown = [fly(course, a.setting, a.first + k) for k in range(a.seeds)]
        flights = [flight for flight in flown if flight is not None]
        print(f"\n### {name}, {a.setting}, world unknown, {len(flights)} flights\n\n{table(flights)}")


if __name__ == "__main__":
    main()
