"""How far estimates are off at race speed, and what each trouble costs: python benchmarks/estimation.py --seeds 10

Flies each plan's own trajectory open loop. IMU, attitude and the corners of gates are made from it with noise; every
estimator gets the same data. Attitude telemetry is left out unless a trouble says otherwise, as in the second qualifier.
"""

import sys

if sys.path and sys.path[0].endswith("benchmarks"):
    del sys.path[0]  # its scripts would hide the rooms of their names

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import product as every
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import chi2

from estimation.choice import ESTIMATORS, make_estimator
from estimation.estimator import Estimator, State
from link.messages import Attitude
from link.messages import Imu as Sample
from perception.association import Associator, Look
from perception.detection import Detection
from planner.options import PlanOptions
from planner.plan import accelerations
from planner.planning import find_or_make_plan
from sim.view.look import load_look
from sim.view.projected import NOISE, CornerNoise, ProjectedCamera
from tracks.track import Track, load_track
from vehicle.config import load
from vehicle.dynamics import GRAVITY
from vehicle.rotation import Array, between, conjugate, log, matrix, normalised, product
from vehicle.vehicle import Imu, Vehicle, load_vehicle

HZ = 120.0
REST_S = 1.0
LATENCY_S = 0.024  # exposure to detections
PARTS = 12  # points of the trajectory between two nodes of the plan
NEES_EVERY = 30  # ticks
TRACKS = ("vq1", "vq2", "splits_swift")
BLIND = "dead reckoning"
NAMES = (BLIND, *ESTIMATORS)
IDEAL, MEMS = Imu(0.0, 0.0, 0.0, 0.0), Imu(0.1, 0.3, 0.01, 0.02)


@dataclass(frozen=True)
class Trouble:
    """What goes wrong in one row of the table."""

    name: str
    imu: Imu | None = None  # None: the vehicle's own
    attitude: bool = False
    camera_hz: float = 30.0
    lost: float = 0.0  # share of the frames
    late_s: float = LATENCY_S
    tilt_deg: float = 0.0  # by which the camera's tilt differs from what is known
    clock_s: float = 0.0  # by which the stamps of pictures are late
    moved_m: float = 0.0  # by which each gate stands elsewhere than on the map, in a direction of its own
    stretched: float = 0.0  # share by which the course is larger than on the map
    false_hz: float = 0.0  # squares that are no gates


TROUBLES = (
    Trouble("ideal IMU", imu=IDEAL),
    Trouble("as modelled"),
    Trouble("with ATTITUDE", attitude=True),
    Trouble("consumer MEMS", imu=MEMS),
    Trouble("camera 15 Hz", camera_hz=15.0),
    Trouble("camera 5 Hz", camera_hz=5.0),
    Trouble("half the frames lost", lost=0.5),
    Trouble("50 ms late", late_s=0.05),
    Trouble("tilt 1.5 deg wrong", tilt_deg=1.5),
    Trouble("clock 20 ms wrong", clock_s=0.02),
    Trouble("gates moved by 0.3 m", moved_m=0.3),
    Trouble("map 1 % too small", stretched=0.01),
    Trouble("false gate each second", false_hz=1.0),
)


@dataclass(frozen=True)
class Truth:
    """The flight, tick by tick: `REST_S` on the pad, then the plan."""

    t: Array  # (M,) s
    p: Array  # (M, 3)
    q: Array  # (M, 4)
    v: Array  # (M, 3)
    w: Array  # (M, 3)
    force_b: Array  # (M, 3) specific force
    gate_ticks: np.ndarray  # the ticks nearest to the gates' planes


@cache
def flight(name: str, plans: str) -> tuple[Track, Vehicle, Truth]:
    track, vehicle = load_track(f"tracks/{name}.yaml"), load_vehicle("dcl")
    plan = find_or_make_plan(Path(plans), track, vehicle, PlanOptions(), None)
    t, x, u = plan.dense(vehicle, PARTS)
    a_w = accelerations(replace(plan, t=t, x=x, u=u), vehicle)
    ticks = np.arange(1, int((REST_S + t[-1]) * HZ)) / HZ
    rows = np.column_stack([x[:, :3], x[:, 7:13], a_w])
    p, v, w, a = np.split(np.column_stack([np.interp(ticks - REST_S, t, column) for column in rows.T]), 4, axis=1)
    k = np.clip(np.searchsorted(t, ticks - REST_S, side="right") - 1, 0, len(t) - 2)
    s = np.clip((ticks - REST_S - t[k]) / (t[k + 1] - t[k]), 0, 1)
    q = np.array([between(x[i, 3:7], x[i + 1, 3:7], part) for i, part in zip(k, s, strict=True)])
    a[ticks <= REST_S] = 0.0
    force = np.array([matrix(q_wb).T @ (a_w - [0, 0, GRAVITY]) for q_wb, a_w in zip(q, a, strict=True)])
    gates = np.round((REST_S + plan.t[list(plan.gate_nodes)]) * HZ).astype(int) - 1
    return track, vehicle, Truth(ticks, p, q, v, w, force, gates[gates < len(ticks)])


@dataclass(frozen=True)
class Data:
    """What the estimators are fed: per tick a sample, an attitude and the pictures that arrive."""

    samples: list[Sample]
    attitudes: list[Attitude] | None
    pictures: dict[int, tuple[float, list[Detection]]]  # tick of arrival: stamp and detections
    moved: Array  # (G, 3) m, by which each gate stands elsewhere than on the map


def measured(track: Track, vehicle: Vehicle, truth: Truth, trouble: Trouble, seed: int) -> Data:
    """One flight's data. A detector that states its noise rightly sees gates drawn with a common edge error."""
    rng, imu = np.random.default_rng([seed, 7]), trouble.imu or vehicle.imu
    bias_a, bias_g = rng.normal(0, imu.accel_bias_m_s2, 3), rng.normal(0, imu.gyro_bias_rad_s, 3)
    accel = truth.force_b + bias_a + rng.normal(0, 1, truth.p.shape) * imu.accel_noise_m_s2
    gyro = truth.w + bias_g + rng.normal(0, 1, truth.p.shape) * imu.gyro_noise_rad_s
    samples = [Sample(t, tuple(f), tuple(w)) for t, f, w in zip(truth.t, accel.tolist(), gyro.tolist(), strict=True)]
    attitudes = [Attitude(t, tuple(q)) for t, q in zip(truth.t, truth.q.tolist(), strict=True)]
    moved = _moved(track, rng, trouble)
    world = replace(
        track,
        gates=tuple(replace(g, centre_m=tuple(g.p_wg + step)) for g, step in zip(track.gates, moved, strict=True)),
    )
    noise = load(NOISE, CornerNoise)
    stated = tuple(np.hypot(noise.corner_px, noise.swell_std_px).tolist())
    edge_px = float(rng.normal(0, Look().edge_px))
    noise = replace(noise, sigma_px=stated, swell_px=tuple(edge_px + value for value in noise.swell_px))
    camera = replace(vehicle.camera, tilt_deg=vehicle.camera.tilt_deg + trouble.tilt_deg)
    eye = ProjectedCamera(world, camera, load_look("race"), seed, noise)
    pictures = {}
    for k in range(0, len(truth.t), round(HZ / trouble.camera_hz)):
        detections = [Detection.whole(g.corners_px, g.sigma_px, g.score) for g in eye.see(truth.p[k], truth.q[k])]
        lost, phantom = rng.random(2)
        if phantom < trouble.false_hz / trouble.camera_hz:
            detections.append(_phantom(rng, vehicle))
        if lost >= trouble.lost:
            pictures[k + round(trouble.late_s * HZ)] = (truth.t[k] + trouble.clock_s, detections)
    return Data(samples, attitudes if trouble.attitude else None, pictures, moved)


def _moved(track: Track, rng: np.random.Generator, trouble: Trouble) -> Array:
    """(G, 3) m, of each gate: by itself, and as the map is stretched away from the pad."""
    direction = rng.normal(0, 1, (len(track.gates), 3))
    alone = trouble.moved_m * direction / np.linalg.norm(direction, axis=1)[:, None]
    return alone + trouble.stretched * (np.array([gate.p_wg for gate in track.gates]) - track.start.p_wb)


def _phantom(rng: np.random.Generator, vehicle: Vehicle) -> Detection:
    """A square somewhere in the picture."""
    side = rng.uniform(15, 80)
    middle = rng.uniform([side, side], [vehicle.camera.width_px - side, vehicle.camera.height_px - side])
    corners = middle + side / 2 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) + rng.normal(0, 0.3, (4, 2))
    return Detection.whole(corners, 0.3, 0.9)


def fly(
    estimator: Estimator, associator: Associator, data: Data, gate_ticks: np.ndarray, sees: bool
) -> tuple[list[State], Array, Array, Array]:
    """The state at every tick from the release, the position (G, 3) at the plane of each gate as it is believed to lie to
    the map's gate, and what IMU samples and pictures cost, s."""
    states, at_gates, sample_s, picture_s = [], [], [], []
    gates = {int(tick): gate for gate, tick in enumerate(gate_ticks)}
    for k, sample in enumerate(data.samples):
        begin = time.thread_time()
        estimator.imu(sample)
        sample_s.append(time.thread_time() - begin)
        if data.attitudes is not None:
            estimator.attitude(data.attitudes[k])
        if sample.t <= REST_S:
            if sample.t > REST_S - 0.5 / HZ:
                estimator.release()
            continue
        if sees and k in data.pictures:
            picture_s.append(_look(estimator, associator, *data.pictures[k]))
        states.append(estimator.state())
        if k in gates:
            at_gates.append(states[-1].p_wb - estimator.gate_offset(gates[k]))
    return states, np.array(at_gates), np.array(sample_s), np.array(picture_s)


def _look(estimator: Estimator, associator: Associator, t: float, detections: list[Detection]) -> float:
    """What a picture costs beside the association, s."""
    elsewhere = 0.0

    def recognise(prior: State):
        nonlocal elsewhere
        begin = time.thread_time()
        found = associator.associate(prior.t, detections, prior.p_wb, prior.cov_p, prior.q_wb, prior.sigma_attitude_rad)
        elsewhere = time.thread_time() - begin
        return found

    begin = time.thread_time()
    estimator.picture(t, recognise)
    return time.thread_time() - begin - elsewhere


def judged(case: tuple[str, str, int, str, tuple[str, ...]]) -> list[dict]:
    """The errors of every estimator on one flight."""
    track_name, trouble_name, seed, plans, names = case
    track, vehicle, truth = flight(track_name, plans)
    trouble = next(trouble for trouble in TROUBLES if trouble.name == trouble_name)
    data, known = measured(track, vehicle, truth, trouble, seed), replace(vehicle, imu=trouble.imu or vehicle.imu)
    rows = []
    for name in names:
        associator = Associator(track.gates, vehicle.camera)
        kind = "drift" if name == BLIND else name
        estimator = make_estimator(kind, track.start, known, associator.look)
        states, at_gates, sample_s, picture_s = fly(estimator, associator, data, truth.gate_ticks, name != BLIND)
        first = len(truth.t) - len(states)
        at_gates_true = truth.p[truth.gate_ticks] - data.moved[: len(at_gates)]
        error = np.array([_error(s, truth, first + k) for k, s in enumerate(states)])
        p, v, attitude = (np.linalg.norm(error[:, 3 * i : 3 * i + 3], axis=1) for i in range(3))
        # Each tenth tick stands for itself: the errors between are nearly the same.
        nees = [
            float(error[k] @ np.linalg.solve(states[k].cov, error[k]))
            for k in range(NEES_EVERY, len(states), NEES_EVERY)
        ]
        rows.append(
            {
                "track": track_name, "trouble": trouble_name, "seed": seed, "estimator": name,
                "p_rmse_m": _rms(p), "v_rmse_m_s": _rms(v), "attitude_rmse_deg": float(np.degrees(_rms(attitude))),
                "at_gates_m": _in_gate_axes(track, at_gates_true - at_gates), "nees": nees,
                "sample_ms_p99": float(np.percentile(sample_s, 99) * 1e3),
                "picture_ms_p99": float(np.percentile(picture_s, 99) * 1e3) if len(picture_s) else 0.0,
                "nis": estimator.health.nis, "refused": estimator.health.gates_refused,
            }
        )  # fmt: skip
    return rows


def _error(state: State, truth: Truth, k: int) -> Array:
    """(9,) true minus estimated position, velocity and attitude."""
    turn = log(normalised(product(conjugate(state.q_wb), truth.q[k])))
    return np.concatenate([truth.p[k] - state.p_wb, truth.v[k] - state.v_w, turn])


def _in_gate_axes(track: Track, error_w: Array) -> list[list[float]]:
    """Errors (G, 3) at the gates' planes: along the flight, right and down."""
    return [(gate.R_wg.T @ error).tolist() for gate, error in zip(track.gates, error_w, strict=False)]


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def summary(rows: list[dict], names: tuple[str, ...]) -> list[dict]:
    """One row per track, trouble and estimator: means over seeds, percentiles over seeds and gates, medians of the costs."""
    result = []
    for track, trouble, name in every(
        dict.fromkeys(r["track"] for r in rows), dict.fromkeys(r["trouble"] for r in rows), names
    ):
        own = [r for r in rows if (r["track"], r["trouble"], r["estimator"]) == (track, trouble, name)]
        gates, nees = np.concatenate([r["at_gates_m"] for r in own]), np.concatenate([r["nees"] for r in own])
        whole, across = np.linalg.norm(gates, axis=1), np.linalg.norm(gates[:, 1:], axis=1)
        means = {
            key: float(np.mean([r[key] for r in own])) for key in ("p_rmse_m", "v_rmse_m_s", "attitude_rmse_deg", "nis")
        }
        result.append(
            {
                "track": track, "trouble": trouble, "estimator": name, **means,
                "gates_p50_m": float(np.percentile(whole, 50)), "gates_p95_m": float(np.percentile(whole, 95)),
                "across_p95_m": float(np.percentile(across, 95)),
                "nees": float(np.mean(nees)), "nees_in_band": _in_band(nees),
                "sample_ms_p99": float(np.median([r["sample_ms_p99"] for r in own])),
                "picture_ms_p99": float(np.median([r["picture_ms_p99"] for r in own])),
            }
        )  # fmt: skip
    return result


def _in_band(nees: Array) -> float:
    """Share of the NEES below the 95 % point of chi-square with 9 degrees of freedom; 0.95 if consistent."""
    return float(np.mean(nees < chi2.ppf(0.95, 9)))


COLUMNS = (  # key, head, format
    ("track", "track", "13s"),
    ("trouble", "trouble", "23s"),
    ("estimator", "estimator", "15s"),
    ("p_rmse_m", "p rms m", "9.3f"),
    ("gates_p50_m", "gates p50", "9.3f"),
    ("gates_p95_m", "gates p95", "9.3f"),
    ("across_p95_m", "across", "9.3f"),
    ("v_rmse_m_s", "v rms m/s", "9.3f"),
    ("attitude_rmse_deg", "att deg", "9.2f"),
    ("nees", "NEES (9)", "9.1f"),
    ("nees_in_band", "< 95 %", "9.2f"),
    ("nis", "NIS", "9.2f"),
    ("sample_ms_p99", "IMU ms", "9.3f"),
    ("picture_ms_p99", "frame ms", "9.3f"),
)


def table(rows: list[dict]) -> str:
    def width(form: str) -> str:
        return "<" + form.rstrip("s") if form.endswith("s") else ">" + form.split(".")[0]

    head = " ".join(format(name, width(form)) for _, name, form in COLUMNS)
    return "\n".join([head, *(" ".join(format(r[key], form) for key, _, form in COLUMNS) for r in rows)])


def draw(path: Path, rows: list[dict], names: tuple[str, ...]) -> None:
    """p95 at the gates by trouble, one panel per track."""
    tracks, troubles = list(dict.fromkeys(r["track"] for r in rows)), list(dict.fromkeys(r["trouble"] for r in rows))
    figure, axes = plt.subplots(
        1, len(tracks), figsize=(5 * len(tracks), 5), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, track in zip(axes[0], tracks, strict=True):
        for k, name in enumerate(names):
            values = [r["gates_p95_m"] for r in rows if (r["track"], r["estimator"]) == (track, name)]
            axis.barh(np.arange(len(troubles)) + 0.8 * k / len(names), values, 0.8 / len(names), label=name)
        axis.set(title=track, xlabel="p95 of the position error at gates [m]", xscale="log")
        axis.set_yticks(np.arange(len(troubles)) + 0.4, troubles)
        axis.grid(alpha=0.3)
    axes[0][0].invert_yaxis()
    axes[0][-1].legend()
    figure.savefig(path, dpi=90)


def run(cases: list[tuple], workers: int, tell: Callable[[int, int], None]) -> list[dict]:
    rows: list[dict] = []
    with ProcessPoolExecutor(workers) as pool:
        for k, found in enumerate(pool.map(judged, cases, chunksize=4)):
            rows += found
            tell(k + 1, len(cases))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Estimation errors by source of trouble.")
    parser.add_argument("--tracks", nargs="+", default=list(TRACKS))
    parser.add_argument("--troubles", nargs="+", default=[trouble.name for trouble in TROUBLES])
    parser.add_argument("--estimators", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plans", default="plans")
    parser.add_argument("--out", type=Path, default=Path("logs"))
    a = parser.parse_args()
    names = tuple(a.estimators)
    for track in a.tracks:
        flight(track, a.plans)  # makes the plans before the workers want them
    cases = [
        (track, trouble, seed, a.plans, names) for track, trouble, seed in every(a.tracks, a.troubles, range(a.seeds))
    ]
    rows = run(cases, a.workers, lambda k, n: print(f"\r{k}/{n}", end="", file=sys.stderr, flush=True))
    print(file=sys.stderr)
    overall = summary(rows, names)
    print(table(overall))
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / "estimation.json").write_text(json.dumps({"summary": overall, "flights": rows}, indent=2))
    draw(a.out / "estimation.png", overall, names)


if __name__ == "__main__":
    main()
