"""Estimation errors at race speed by source of error, for every estimator: python benchmarks/estimation.py --seeds 100

A flight on the true state is recorded once per take, with noise-free IMU samples at the real builds' rates, so that integration
errors due to sampling are included; a seed draws the sensors' errors, and every estimator receives the same data. Errors at a
gate's plane are those of the position relative to the true gate. NEES (Bar-Shalom, Li and Kirubarajan 2001, sec. 5.4) is that of
position, velocity and attitude. In "all drawn from the prior" all uncertain states are drawn from the error-state filter's prior,
so that it should be 9; a second table has the NEES of the sensors' constants at the end of these flights, which should be 1.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate
from itertools import product as every
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng
from scipy.optimize import least_squares

from gate_racer.benchmarks.tables import Result, conclude, script
from gate_racer.common.config import load
from gate_racer.common.errors import exit_code
from gate_racer.estimation.eskf import ErrorStateEstimator
from gate_racer.estimation.estimator import MapEstimator, State
from gate_racer.estimation.localisation import localise
from gate_racer.estimation.registry import ESTIMATORS, VIO, make_estimator
from gate_racer.link.messages import Arm, Attitude, Imu
from gate_racer.link.profile import RateDivider, load_profile
from gate_racer.model.gate_offsets import SHARED
from gate_racer.model.reprojection import calibrated, mounted
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import ERROR, KNOWN, SCALE, STATES, Nominal, column
from gate_racer.mpc.registry import make_controller
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection
from gate_racer.pilot.flight import set_point
from gate_racer.planner.planning import find_or_make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.race.campaign.flight import state_error
from gate_racer.race.lockstep import detections
from gate_racer.sim.physics.plant import P, Q, V
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.view.projected import NOISE, CornerNoise, ProjectedCamera
from gate_racer.sim.view.style import load_style
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import Start, Track, load_track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, exp, matrix
from gate_racer.vehicle.vehicle import ImuParameters, Vehicle, load_vehicle

REST_S = 1.0  # s on the pad before the flight
# Multiple of the stamping clock and of the command rate, so that every stamp falls on a tick.
PHYSICS_HZ = 720.0
ASTRAY_M, ASTRAY_S = 0.05, 0.5  # std per axis and correlation time of the controller's position error
IDEAL = ImuParameters(0.0, 0.0, 0.0, 0.0)
LATENCY_S = 0.024  # s, from exposure to detections
CAMERA_HZ = 30.0  # Hz, nominal rate of the record
MEMS = ImuParameters(0.1, 0.3, 0.01, 0.02)
STATE_EVERY, NEES_EVERY = 3, 10  # IMU samples between evaluated states; states between samples of the NEES
TAKES = 20  # recorded flights per track, shared by the seeds
BLIND = "dead reckoning"
JUDGED = (BLIND, *(name for name in ESTIMATORS if name != VIO))  # the record holds no VIO
OF_SENSORS = ("b_a", "b_g", "accel_delay", "s_a", "s_g", "yaw", "tilt", "roll", "focal", "centre", "arm", "delay")
OF_CAMERA = ("yaw", "tilt", "roll", "focal", "centre", "arm")
BLANK = Nominal.at(0.0, np.zeros(3), np.zeros(3), np.array([1.0, 0, 0, 0]))


@dataclass(frozen=True)
class RecordedFlight:
    """Sensor data of one flight, N samples, with the truth."""

    samples: list[Imu]
    fresh: np.ndarray  # (N,) bool; the other samples repeat the previous values
    t: Array  # (N,) s, times of the samples
    p: Array  # (N, 3) m, true position
    q: Array  # (N, 4)
    v: Array  # (N, 3) m/s
    exposures: list[tuple[float, Array, Array]]  # stamp s, p_wb, q_wb
    crossings: np.ndarray  # (G,) index of the sample nearest to the plane of each gate


@cache
def flight(name: str, plans: str, take: int) -> tuple[Track, Vehicle, RecordedFlight]:
    """Fly one race of `dcl` at race speed, with the tracking controller on a slightly erroneous state, different per take.

    Integration errors due to sampling thus differ between takes as well.
    """
    track, vehicle = load_track(name), load_vehicle("dcl")
    plan = find_or_make_plan(Path(plans), track, vehicle, PlanOptions(), None)
    profile = replace(load_profile("dcl"), physics_hz=PHYSICS_HZ, race=None)
    simulator = Simulator(as_believed(track, replace(vehicle, imu=IDEAL)), profile, seed=0)
    controller = make_controller("tracking", plan, vehicle, track)
    rng, keep, off = default_rng([take, 6]), np.exp(-1 / (profile.command_hz * ASTRAY_S)), np.zeros(3)
    rest_s = REST_S + rng.random() / profile.command_hz  # random phase of commands relative to samples
    samples, truth, exposures = list[Imu](), list[Array](), list[tuple[float, Array, Array]]()

    def tick() -> None:
        output = simulator.tick()
        for message in output.telemetry:
            if isinstance(message, Imu):
                samples.append(message)
                truth.append(simulator.truth.x[:])
        if output.exposure is not None:
            exposures.append((output.exposure.t, output.exposure.p_wb, output.exposure.q_wb))

    while simulator.t < rest_s:
        tick()
    simulator.command(Arm(True))
    first, every, race = simulator.count, round(PHYSICS_HZ / profile.command_hz), simulator.referee.race
    while race.status is RunStatus.RUNNING:
        if (simulator.count - first) % every == 0:
            off = keep * off + np.sqrt(1 - keep**2) * rng.normal(0, ASTRAY_M, 3)
            x = np.concatenate([simulator.truth.x[:13], [0.0]])
            x[P] += off
            control = controller.step(simulator.t, x, 1 / profile.command_hz)
            controller.prepare()
            simulator.command(set_point(control, vehicle))
        tick()
    assert race.status is RunStatus.FINISHED, race.cause
    fresh = RateDivider(profile.imu_fresh_hz, profile.imu_hz)
    new = np.array([k == 0 or fresh(k + 1) for k in range(len(samples))])
    x, t = np.array(truth), np.array([sample.t for sample in samples])
    go = simulator.path[0][0] - 1 / PHYSICS_HZ
    crossings = np.array([int(np.argmin(np.abs(t - go - at))) for at in race.gate_times_s])
    return track, vehicle, RecordedFlight(samples, new, t, x[:, P], x[:, Q], x[:, V], exposures, crossings)


@dataclass(frozen=True)
class Trouble:
    """Source of error of one row of the table."""

    imu: ImuParameters | None = None  # None: the vehicle's own
    attitude: bool = False
    camera_hz: float = CAMERA_HZ
    lost: float = 0.0  # fraction of the frames lost
    late_s: float = LATENCY_S
    tilt_deg: float = 0.0  # true minus modelled tilt of the camera
    old_s: float = 0.0  # delay of the specific force relative to its stamp
    clock_s: float = 0.0  # delay of the stamps of images
    moved_m: float = 0.0  # distance of each gate from its place on the map, in a random direction
    stretched: float = 0.0  # relative excess of the course's scale over the map's
    false_hz: float = 0.0  # rate of false detections
    from_prior: bool = False  # draw all uncertain states from the error-state filter's prior


PRIOR = "all drawn from the prior"
TROUBLES = {
    "ideal IMU": Trouble(imu=IDEAL),
    "as modelled": Trouble(),
    "with ATTITUDE": Trouble(attitude=True),
    "consumer MEMS": Trouble(imu=MEMS),
    "forces 4 ms old": Trouble(old_s=0.004),
    "camera 15 Hz": Trouble(camera_hz=15.0),
    "camera 5 Hz": Trouble(camera_hz=5.0),
    "half the frames lost": Trouble(lost=0.5),
    "50 ms late": Trouble(late_s=0.05),
    "tilt 1.5 deg wrong": Trouble(tilt_deg=1.5),
    "clock 20 ms wrong": Trouble(clock_s=0.02),
    "gates moved by 0.3 m": Trouble(moved_m=0.3),
    "course 1 % larger": Trouble(stretched=0.01),
    "false gate each second": Trouble(false_hz=1.0),
    PRIOR: Trouble(from_prior=True),
}


@dataclass(frozen=True)
class Data:
    """Input of the estimators: IMU samples, attitudes and images by the sample with which they arrive."""

    samples: list[Imu]
    attitudes: list[Attitude] | None
    images: dict[int, tuple[float, list[Detection]]]  # by index of the first sample after arrival: stamp and detections
    start: Start  # pose of the pad as given to the estimators
    moved: Array  # (G, 3) m, true minus mapped position of each gate
    true: dict[str, Array]  # constant states of the sensors by their names in `STATES`


def drawn(trouble: Trouble, imu: ImuParameters, rng: Generator) -> dict[str, Array]:
    """Return the true values of the sensors' constant states by their names in `STATES`, and the rotation of the IMU's axes."""
    sizes = {name: ERROR[name].at.stop - ERROR[name].at.start for name in OF_SENSORS}
    true = {name: trouble.from_prior * STATES[name].prior * rng.normal(0, 1, size) for name, size in sizes.items()}
    true["b_a"] = true["b_a"] + rng.normal(0, imu.accel_bias_m_s2, 3)
    true["b_g"] = true["b_g"] + rng.normal(0, imu.gyro_bias_rad_s, 3)
    true["tilt"] = true["tilt"] + np.radians(trouble.tilt_deg)
    true["accel_delay"] = true["accel_delay"] + trouble.old_s
    true["delay"] = true["delay"] - trouble.clock_s
    return true | {"misaligned": trouble.from_prior * KNOWN.misaligned * rng.normal(0, 1, 3)}


def measured(track: Track, vehicle: Vehicle, record: RecordedFlight, trouble: Trouble, seed: int) -> Data:
    """Return one flight's data. The detector reports its noise correctly, apart from a common edge error of all gates."""
    rng, imu = default_rng([seed, 7]), trouble.imu or vehicle.imu
    true = drawn(trouble, imu, default_rng([seed, 9]))
    samples = _inertial(record, _shaken(record, imu) if trouble.from_prior else imu, true, rng)
    attitudes = [Attitude(t, tuple(q)) for t, q in zip(record.t.tolist(), record.q.tolist(), strict=True)]
    noise = load(NOISE, CornerNoise)
    stated = tuple(np.hypot(noise.corner_px, noise.edge_offset_std_px).tolist())
    edge_px = float(rng.normal(0, GateAppearance().edge_offset_px))
    noise = replace(noise, sigma_px=stated, edge_offset_px=tuple(edge_px + value for value in noise.edge_offset_px))
    start, moved, wider = _elsewhere(track, trouble, default_rng([seed, 8]))
    gates = zip(track.gates, moved, wider, strict=True)
    world = replace(track, gates=tuple(
        gate if gate.is_ball else replace(gate, centre_m=tuple(gate.p_wg + step), opening_m=gate.opening_m + more)
        for gate, step, more in gates
    ))  # fmt: skip
    projector = ProjectedCamera(world, _calibrated(vehicle.camera, true), load_style("race"), seed, noise)
    images = {}
    for stamp, p_wb, q_wb in record.exposures[:: round(CAMERA_HZ / trouble.camera_hz)]:
        seen = detections(projector.see(p_wb, q_wb))
        lost, phantom = rng.random(2)
        if phantom < trouble.false_hz / trouble.camera_hz:
            seen.append(_phantom(rng, vehicle))
        if lost >= trouble.lost:
            arrival = int(np.searchsorted(record.t, stamp + trouble.late_s - 1e-6))
            images[arrival] = (stamp - float(true["delay"][0]), seen)
    return Data(samples, attitudes if trouble.attitude else None, images, start, moved, true)


def _calibrated(camera: Camera, true: dict[str, Array]) -> Camera:
    return calibrated(camera, BLANK.having(**{name: true[name] for name in OF_CAMERA}))


def _inertial(record: RecordedFlight, imu: ImuParameters, true: dict[str, Array], rng: Generator) -> list[Imu]:
    """Return the samples as the IMU reports them; repeated samples repeat their noise."""
    which, fresh_t = np.cumsum(record.fresh) - 1, record.t[record.fresh]
    R_sb = matrix(exp(true["misaligned"])).T
    accel = np.array([sample.accel for sample in record.samples]) @ R_sb.T
    gyro = np.array([sample.gyro for sample in record.samples]) @ R_sb.T
    old_t = fresh_t - true["accel_delay"]
    accel = np.stack([np.interp(old_t, fresh_t, f) for f in accel[record.fresh].T], axis=1)[which]
    accel = accel * (1 + true["s_a"]) + true["b_a"] + imu.accel_noise_m_s2 * rng.normal(0, 1, accel.shape)[which]
    gyro = gyro * (1 + true["s_g"]) + true["b_g"] + imu.gyro_noise_rad_s * rng.normal(0, 1, gyro.shape)[which]
    rows = zip(record.t.tolist(), accel.tolist(), gyro.tolist(), strict=True)
    return [Imu(t, tuple(f), tuple(w)) for t, f, w in rows]


def _shaken(record: RecordedFlight, imu: ImuParameters) -> ImuParameters:
    """Return the IMU's noise increased by the vibration that the error-state filter models, per fresh sample."""
    root_hz = np.sqrt(record.fresh.sum() / (record.t[-1] - record.t[0]))
    return replace(
        imu,
        accel_noise_m_s2=float(np.hypot(imu.accel_noise_m_s2, STATES["v"].walk * root_hz)),
        gyro_noise_rad_s=float(np.hypot(imu.gyro_noise_rad_s, STATES["theta"].walk * root_hz)),
    )


def _elsewhere(track: Track, trouble: Trouble, rng: Generator) -> tuple[Start, Array, Array]:
    """Return the pad as given to the estimators, and the true gates' offsets (G, 3) and wider openings (G,), m, off the map."""
    direction = rng.normal(0, 1, (len(track.gates), 3))
    moved = trouble.moved_m * direction / np.linalg.norm(direction, axis=1)[:, None]
    sigma = trouble.from_prior * np.array(
        [STATES["p"].prior, np.degrees(KNOWN.pad_lean), KNOWN.map_m, 2 * GateAppearance().edge_offset_m]
    )
    own = sigma[2] * rng.normal(0, 1, moved.shape)
    moved += np.array(list(accumulate(own, lambda last, step: SHARED * last + step)))
    larger = trouble.stretched + trouble.from_prior * float(column("prior")[SCALE]) * rng.normal()
    moved += larger * (np.array([gate.p_wg for gate in track.gates]) - track.start.p_wb)
    yaw, pitch = sigma[1] * rng.normal(0, 1, 2) * [KNOWN.pad_yaw / KNOWN.pad_lean, 1.0]
    pad = tuple((track.start.p_wb + sigma[0] * rng.normal(0, 1, 3)).tolist())
    start = Start(pad, track.start.yaw_deg + yaw, track.start.pitch_deg + pitch)
    return start, moved, sigma[3] * rng.normal(0, 1, len(moved))


def _phantom(rng: Generator, vehicle: Vehicle) -> Detection:
    """Draw a false detection: a square at random in the image."""
    side = rng.uniform(15, 80)
    middle = rng.uniform([side, side], [vehicle.camera.width_px - side, vehicle.camera.height_px - side])
    corners = middle + side / 2 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) + rng.normal(0, 0.3, (4, 2))
    return Detection.whole(corners, 0.3, 0.9)


def estimate(
    estimator: MapEstimator, associator: Associator, data: Data, centres: Array, crossings: np.ndarray, sees: bool
) -> tuple[dict[int, State], Array]:
    """Run an estimator on recorded data. Returns the states after the release by sample index, and the estimated positions
    (G, 3) m at the gates' planes in the map frame."""
    states, at_gates = dict[int, State](), []
    gates, released = {int(k): gate for gate, k in enumerate(crossings)}, False
    for k, sample in enumerate(data.samples):
        if not released and sample.t > REST_S:
            estimator.release()
            released = True
        estimator.imu(sample)
        if data.attitudes is not None:
            estimator.attitude(data.attitudes[k])
        if sees and released and k in data.images:
            localise(estimator, associator, *data.images[k])
        if released and (k % STATE_EVERY == 0 or k in gates):
            states[k] = estimator.state()
        if k in gates:
            at_gates.append(states[k].p_wb - estimator.gate_offset(gates[k], centres[gates[k]]))
    return states, np.array(at_gates)


def judged(plans: str, case: tuple[str, str, str, int]) -> dict[str, Any]:
    """Return the errors on one flight; the case: track, source of error, estimator, seed."""
    track_name, source, name, seed = case
    track, vehicle, record = flight(track_name, plans, seed % TAKES)
    trouble = TROUBLES[source]
    data, known = measured(track, vehicle, record, trouble, seed), replace(vehicle, imu=trouble.imu or vehicle.imu)
    centres, associator = np.array([gate.p_wg for gate in track.gates]), Associator(track.gates, vehicle.camera)
    estimator = make_estimator("drift" if name == BLIND else name, data.start, known, associator.appearance)
    states, at_gates = estimate(estimator, associator, data, centres, record.crossings, name != BLIND)
    off_w = record.p[record.crossings] - data.moved[: len(at_gates)] - at_gates
    error = np.array([state_error(state, record.p[k], record.q[k], record.v[k]) for k, state in states.items()])
    # Only every tenth state, since consecutive errors are correlated. Swift's filter is certain of the pad until the first image.
    pairs = [(e, state) for e, state in zip(error, states.values(), strict=True) if state.cov.diagonal().all()]
    nees = [float(e @ np.linalg.solve(state.cov, e)) for e, state in pairs]
    found = {
        "course": track_name, "source of error": source, "estimator": name,
        "rms m": np.sqrt(np.mean((error[:, P] ** 2).sum(axis=1))),
        "at gates": [gate.R_wg.T @ off for gate, off in zip(track.gates, off_w, strict=False)],
        "NEES": nees[::NEES_EVERY],
    }  # fmt: skip
    if trouble.from_prior and isinstance(estimator, ErrorStateEstimator):
        belief, true = estimator.present(), data.true | _mount(vehicle.camera, data.true)
        for state in OF_SENSORS:
            own = ERROR[state].at
            off = true[state] - belief.x[own]
            found[state] = off @ np.linalg.solve(belief.cov[own, own], off) / len(off)
    return found


def _mount(camera: Camera, true: dict[str, Array]) -> dict[str, Array]:
    """Return the true angles of the camera in the IMU's axes, which are the filter's body axes."""
    R_sc = matrix(exp(true["misaligned"])).T @ _calibrated(camera, true).R_bc

    def miss(angles: Array) -> Array:
        at = BLANK.having(yaw=angles[0], tilt=angles[1], roll=angles[2])
        return np.asarray(mounted(camera, at)[0].T - R_sc).ravel()

    return dict(zip(("yaw", "tilt", "roll"), least_squares(miss, np.zeros(3)).x[:, None], strict=True))


def summary(own: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row: percentiles over seeds and gates, and means over seeds."""
    gates, nees = (np.concatenate([one[key] for one in own]) for key in ("at gates", "NEES"))
    row = {key: own[0][key] for key in ("course", "source of error", "estimator")}
    row |= {"at gates p95 m": np.percentile(np.linalg.norm(gates, axis=1), 95)}
    row |= {"across p95 m": np.percentile(np.linalg.norm(gates[:, 1:], axis=1), 95)}
    return row | {"rms m": np.mean([one["rms m"] for one in own]), "NEES of 9": nees.mean()}


def main() -> None:
    parser = script(__doc__)
    parser.add_argument("--tracks", nargs="+", default=["vq1", "vq2"])
    parser.add_argument("--sources", nargs="+", choices=TROUBLES, default=list(TROUBLES), metavar="SOURCE")
    parser.add_argument("--estimators", nargs="+", choices=JUDGED, default=list(JUDGED))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plans", default="plans")
    a = parser.parse_args()
    for track in a.tracks:
        flight(track, a.plans, 0)  # makes the plans before the workers need them
    cases = list(every(a.tracks, a.sources, a.estimators, range(a.seeds)))
    with ProcessPoolExecutor(a.workers) as pool:
        flown = list(pool.map(partial(judged, a.plans), cases, chunksize=a.seeds))
    rows = [summary(flown[k : k + a.seeds]) for k in range(0, len(flown), a.seeds)]
    of_states = [one for one in flown if OF_SENSORS[0] in one]
    states = [
        {"state": name, "NEES per dof": np.mean([one[name] for one in of_states])} for name in OF_SENSORS if of_states
    ]
    seeds = f"0 to {a.seeds - 1}"
    conclude(a.json, Result.of("Estimation errors by source of error", rows, "", seeds),
             *[Result.of(f"Filter states after flights with {PRIOR}", states, "", seeds)] * bool(states))  # fmt: skip


if __name__ == "__main__":
    sys.exit(exit_code(main))
