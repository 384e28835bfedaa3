"""Sensor data of a recorded flight with one source of error each: IMU, attitude and corners of gates.

Flights are recorded once (`recorded.py`); a seed draws the sensor errors, so that every estimator receives the same data.
"""

from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from gate_racer.benchmarks.recorded import IDEAL, RecordedFlight
from gate_racer.estimation.eskf.gate_offsets import SHARED
from gate_racer.estimation.eskf.noise import PAD_SIGMA_TILT, PAD_SIGMA_YAW, Noise
from gate_racer.estimation.eskf.states import STATES
from gate_racer.link.messages import Attitude
from gate_racer.link.messages import Imu as Sample
from gate_racer.perception.detection import Detection
from gate_racer.perception.rims import GateAppearance
from gate_racer.pilot.drivers.lockstep_perception import detections
from gate_racer.sim.view.look import load_look
from gate_racer.sim.view.projected import NOISE, CornerNoise, ProjectedCamera
from gate_racer.tracks.track import Start, Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.config import load
from gate_racer.vehicle.rotation import Array, exp, matrix
from gate_racer.vehicle.vehicle import ImuParameters, Vehicle

LATENCY_S = 0.024  # s, from exposure to detections
CAMERA_HZ = 30.0  # Hz, nominal rate of the record
MEMS = ImuParameters(0.1, 0.3, 0.01, 0.02)


@dataclass(frozen=True)
class Trouble:
    """Sources of error of one row of the table."""

    name: str
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


TROUBLES = (
    Trouble("ideal IMU", imu=IDEAL),
    Trouble("as modelled"),
    Trouble("with ATTITUDE", attitude=True),
    Trouble("consumer MEMS", imu=MEMS),
    Trouble("forces 4 ms old", old_s=0.004),
    Trouble("camera 15 Hz", camera_hz=15.0),
    Trouble("camera 5 Hz", camera_hz=5.0),
    Trouble("half the frames lost", lost=0.5),
    Trouble("50 ms late", late_s=0.05),
    Trouble("tilt 1.5 deg wrong", tilt_deg=1.5),
    Trouble("clock 20 ms wrong", clock_s=0.02),
    Trouble("gates moved by 0.3 m", moved_m=0.3),
    Trouble("course 1 % larger", stretched=0.01),
    Trouble("false gate each second", false_hz=1.0),
    Trouble("all drawn from the prior", from_prior=True),
)


@dataclass(frozen=True)
class Data:
    """Input of the estimators: IMU samples, attitudes and images by the sample with which they arrive."""

    samples: list[Sample]
    attitudes: list[Attitude] | None
    images: dict[int, tuple[float, list[Detection]]]  # by index of the first sample after arrival: stamp and detections
    start: Start  # pose of the pad as given to the estimators
    moved: Array  # (G, 3) m, true minus mapped position of each gate


def measured(track: Track, vehicle: Vehicle, record: RecordedFlight, trouble: Trouble, seed: int) -> Data:
    """Return one flight's data. The detector reports its noise correctly, apart from a common edge error of all gates."""
    rng, imu = np.random.default_rng([seed, 7]), trouble.imu or vehicle.imu
    tilt, late, old = np.random.default_rng([seed, 9]).normal(0, trouble.from_prior, 3) * [
        np.degrees(STATES["tilt"].prior),
        STATES["delay"].prior,
        STATES["accel_delay"].prior,
    ]
    samples = _noisy(record, _shaken(record, imu) if trouble.from_prior else imu, trouble.old_s + old, rng)
    if trouble.from_prior:
        samples = _skewed(samples, Noise(imu).misaligned, np.random.default_rng([seed, 11]))
    attitudes = [Attitude(t, tuple(q)) for t, q in zip(record.t.tolist(), record.q.tolist(), strict=True)]
    noise = load(NOISE, CornerNoise)
    stated = tuple(np.hypot(noise.corner_px, noise.edge_offset_std_px).tolist())
    edge_px = float(rng.normal(0, GateAppearance().edge_offset_px))
    noise = replace(noise, sigma_px=stated, edge_offset_px=tuple(edge_px + value for value in noise.edge_offset_px))
    start, moved, wider = _elsewhere(track, imu, trouble, np.random.default_rng([seed, 8]))
    camera = replace(vehicle.camera, tilt_deg=vehicle.camera.tilt_deg + trouble.tilt_deg + tilt)
    if trouble.from_prior:
        camera = _miscalibrated(camera, np.random.default_rng([seed, 10]))
    gates = zip(track.gates, moved, wider, strict=True)
    world = replace(track, gates=tuple(
        gate if gate.is_ball else replace(gate, centre_m=tuple(gate.p_wg + step), opening_m=gate.opening_m + more)
        for gate, step, more in gates
    ))  # fmt: skip
    projector = ProjectedCamera(world, camera, load_look("race"), seed, noise)
    images = {}
    for stamp, p_wb, q_wb in record.exposures[:: round(CAMERA_HZ / trouble.camera_hz)]:
        seen = detections(projector.see(p_wb, q_wb))
        lost, phantom = rng.random(2)
        if phantom < trouble.false_hz / trouble.camera_hz:
            seen.append(_phantom(rng, vehicle))
        if lost >= trouble.lost:
            arrival = int(np.searchsorted(record.t, stamp + trouble.late_s - 1e-6))
            images[arrival] = (stamp + trouble.clock_s + late, seen)
    return Data(samples, attitudes if trouble.attitude else None, images, start, moved)


def _miscalibrated(camera: Camera, rng: np.random.Generator) -> Camera:
    """Return the camera with mount (tilt excepted) and lens drawn from the filter's prior."""
    yaw, roll = np.degrees([STATES["yaw"].prior, STATES["roll"].prior]) * rng.normal(0, 1, 2)
    focal, cx, cy = 1 + STATES["focal"].prior * rng.normal(), *(STATES["centre"].prior * rng.normal(0, 1, 2))
    return replace(
        camera,
        yaw_deg=camera.yaw_deg + yaw,
        roll_deg=camera.roll_deg + roll,
        fx_px=camera.fx_px * focal,
        fy_px=camera.fy_px * focal,
        cx_px=camera.cx_px + cx,
        cy_px=camera.cy_px + cy,
        p_bc_m=tuple(camera.p_bc + STATES["arm"].prior * rng.normal(0, 1, 3)),
    )


def _skewed(samples: list[Sample], misaligned: float, rng: np.random.Generator) -> list[Sample]:
    """Return the samples with misalignment, scales and biases drawn from the filter's prior."""
    R_sb = matrix(exp(misaligned * rng.normal(0, 1, 3))).T
    scale_a, scale_g = 1 + np.array([[STATES["s_a"].prior], [STATES["s_g"].prior]]) * rng.normal(0, 1, (2, 3))
    bias_a, bias_g = np.array([[STATES["b_a"].prior], [STATES["b_g"].prior]]) * rng.normal(0, 1, (2, 3))
    return [
        Sample(
            s.t,
            tuple((scale_a * (R_sb @ s.accel) + bias_a).tolist()),
            tuple((scale_g * (R_sb @ s.gyro) + bias_g).tolist()),
        )
        for s in samples
    ]


def _shaken(record: RecordedFlight, imu: ImuParameters) -> ImuParameters:
    """Return the IMU's noise increased by the vibration that the error-state filter models, per fresh sample."""
    root_hz = np.sqrt(record.fresh.sum() / (record.t[-1] - record.t[0]))
    return replace(
        imu,
        accel_noise_m_s2=float(np.hypot(imu.accel_noise_m_s2, STATES["v"].walk * root_hz)),
        gyro_noise_rad_s=float(np.hypot(imu.gyro_noise_rad_s, STATES["theta"].walk * root_hz)),
    )


def _noisy(record: RecordedFlight, imu: ImuParameters, old_s: float, rng: np.random.Generator) -> list[Sample]:
    """Return the samples with biases and noise, and forces delayed by `old_s`; repeated samples repeat their noise."""
    which, fresh_t = np.cumsum(record.fresh) - 1, record.t[record.fresh]
    accel, gyro = (np.array(values) for values in zip(*((s.accel, s.gyro) for s in record.samples), strict=True))
    accel = np.stack([np.interp(fresh_t - old_s, fresh_t, f) for f in accel[record.fresh].T], axis=1)[which]
    accel = accel + rng.normal(0, imu.accel_bias_m_s2, 3) + imu.accel_noise_m_s2 * rng.normal(0, 1, accel.shape)[which]
    gyro = gyro + rng.normal(0, imu.gyro_bias_rad_s, 3) + imu.gyro_noise_rad_s * rng.normal(0, 1, gyro.shape)[which]
    rows = zip(record.t.tolist(), accel.tolist(), gyro.tolist(), strict=True)
    return [Sample(t, tuple(f), tuple(w)) for t, f, w in rows]


def _elsewhere(
    track: Track, imu: ImuParameters, trouble: Trouble, rng: np.random.Generator
) -> tuple[Start, Array, Array]:
    """Return the pad as given to the estimators, and the true gates' offsets (G, 3) and wider openings (G,), m, off the map."""
    direction = rng.normal(0, 1, (len(track.gates), 3))
    moved = trouble.moved_m * direction / np.linalg.norm(direction, axis=1)[:, None]
    sigma = trouble.from_prior * np.array(
        [STATES["p"].prior, np.degrees(PAD_SIGMA_TILT), Noise(imu).map_m, 2 * GateAppearance().edge_offset_m]
    )
    own = sigma[2] * rng.normal(0, 1, moved.shape)
    moved += np.array(list(accumulate(own, lambda last, step: SHARED * last + step)))
    larger = trouble.stretched + trouble.from_prior * STATES["scale"].prior * rng.normal()
    moved += larger * (np.array([gate.p_wg for gate in track.gates]) - track.start.p_wb)
    yaw, pitch = sigma[1] * rng.normal(0, 1, 2) * [PAD_SIGMA_YAW / PAD_SIGMA_TILT, 1.0]
    pad = tuple((track.start.p_wb + sigma[0] * rng.normal(0, 1, 3)).tolist())
    start = Start(pad, track.start.yaw_deg + yaw, track.start.pitch_deg + pitch)
    return start, moved, sigma[3] * rng.normal(0, 1, len(moved))


def _phantom(rng: np.random.Generator, vehicle: Vehicle) -> Detection:
    """Draw a false detection: a square at random in the image."""
    side = rng.uniform(15, 80)
    middle = rng.uniform([side, side], [vehicle.camera.width_px - side, vehicle.camera.height_px - side])
    corners = middle + side / 2 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) + rng.normal(0, 0.3, (4, 2))
    return Detection.whole(corners, 0.3, 0.9)
