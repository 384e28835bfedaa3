"""Estimation errors at race speed, by source of error: python benchmarks/estimation.py --seeds 10

Every estimator receives the same data (`troubles.py`). Attitude telemetry is left out unless a row includes it, as in the
second qualifier. Errors at a gate's plane are those of the position relative to the true gate. NEES (Bar-Shalom, Li and
Kirubarajan 2001, sec. 5.4) is that of position, velocity and attitude; in "all drawn from the prior" all uncertain states
are drawn from the error-state filter's prior, so that it should be 9 and the mean of the flights within its 95 % band.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product as every
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import chi2

from gate_racer.benchmarks.recorded import REST_S, RecordedFlight, flight
from gate_racer.benchmarks.troubles import TROUBLES, Data, measured
from gate_racer.estimation.estimator import MapEstimator, State
from gate_racer.estimation.registry import ESTIMATORS, make_estimator
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array, conjugate, log, normalised, product

STATE_EVERY, NEES_EVERY = 3, 10  # IMU samples between evaluated states; states between samples of the NEES
TAKES = 20  # recorded flights per track, shared by the seeds
TRACKS = ("vq1", "vq2", "splits_swift")
BLIND = "dead reckoning"
NAMES = (BLIND, *ESTIMATORS)
TROUBLE_NAMES = [trouble.name for trouble in TROUBLES]
EstimationCase = tuple[str, str, int, str, tuple[str, ...]]  # track, trouble, seed, folder of the plans, estimators


def fly(
    estimator: MapEstimator, associator: Associator, data: Data, centres: Array, crossings: np.ndarray, sees: bool
) -> tuple[dict[int, State], Array, Array, Array]:
    """Run an estimator on recorded data. Returns the states after the release by sample index, the estimated positions (G, 3)
    m at the gates' planes in the map frame, and the CPU times of IMU samples and images, s."""
    states, at_gates, sample_s, image_s = dict[int, State](), [], [], []
    gates, released = {int(k): gate for gate, k in enumerate(crossings)}, False
    for k, sample in enumerate(data.samples):
        if not released and sample.t > REST_S:
            estimator.release()
            released = True
        begin = time.thread_time()
        estimator.imu(sample)
        sample_s.append(time.thread_time() - begin)
        if data.attitudes is not None:
            estimator.attitude(data.attitudes[k])
        if sees and released and k in data.images:
            image_s.append(_look(estimator, associator, *data.images[k]))
        if released and (k % STATE_EVERY == 0 or k in gates):
            states[k] = estimator.state()
        if k in gates:
            at_gates.append(states[k].p_wb - estimator.gate_offset(gates[k], centres[gates[k]]))
    return states, np.array(at_gates), np.array(sample_s), np.array(image_s)


def _look(estimator: MapEstimator, associator: Associator, t: float, detections: list[Detection]) -> float:
    """Process an image; return its CPU time without the association, s."""
    begin = time.thread_time()
    exposure = estimator.predict(t)
    predict_s = time.thread_time() - begin
    if exposure is None:
        return predict_s
    at = exposure.state
    found = associator.associate(at.t, detections, at.p_wb, at.cov_p, at.q_wb, at.sigma_attitude_rad)
    begin = time.thread_time()
    estimator.correct(exposure, *found)
    return predict_s + time.thread_time() - begin


def judged(case: EstimationCase) -> list[dict]:
    """Return the errors of every estimator on one flight."""
    track_name, trouble_name, seed, plans, names = case
    track, vehicle, record = flight(track_name, plans, seed % TAKES)
    trouble = next(trouble for trouble in TROUBLES if trouble.name == trouble_name)
    data, known = measured(track, vehicle, record, trouble, seed), replace(vehicle, imu=trouble.imu or vehicle.imu)
    centres, rows = np.array([gate.p_wg for gate in track.gates]), []
    for name in names:
        associator = Associator(track.gates, vehicle.camera)
        kind = "drift" if name == BLIND else name
        estimator = make_estimator(kind, data.start, known, associator.appearance)
        states, at_gates, sample_s, image_s = fly(estimator, associator, data, centres, record.crossings, name != BLIND)
        at_gates_true = record.p[record.crossings] - data.moved[: len(at_gates)]
        error = np.array([_error(state, record, k) for k, state in states.items()])
        p, v, attitude = (np.linalg.norm(error[:, 3 * i : 3 * i + 3], axis=1) for i in range(3))
        covs = [state.cov for state in states.values()]
        # Only every tenth state, since consecutive errors are correlated.
        nees = [float(e @ np.linalg.solve(cov, e)) for e, cov in list(zip(error, covs, strict=True))[::NEES_EVERY]]
        rows.append(
            {
                "track": track_name, "trouble": trouble_name, "seed": seed, "estimator": name,
                "p_rmse_m": _rms(p), "v_rmse_m_s": _rms(v), "attitude_rmse_deg": float(np.degrees(_rms(attitude))),
                "at_gates_m": _in_gate_axes(track, at_gates_true - at_gates), "nees": nees,
                "sample_ms_p99": float(np.percentile(sample_s, 99) * 1e3),
                "image_ms_p99": float(np.percentile(image_s, 99) * 1e3) if len(image_s) else 0.0,
                "nis": estimator.health.nis, "refused": estimator.health.gates_refused,
            }
        )  # fmt: skip
    return rows


def _error(state: State, record: RecordedFlight, k: int) -> Array:
    """Return true minus estimated position, velocity and attitude (9,) at sample k."""
    turn = log(normalised(product(conjugate(state.q_wb), record.q[k])))
    return np.concatenate([record.p[k] - state.p_wb, record.v[k] - state.v_w, turn])


def _in_gate_axes(track: Track, error_w: Array) -> list[list[float]]:
    """Return world errors (G, 3) at the gates' planes in gate axes: along the flight, right, down."""
    return [(gate.R_wg.T @ error).tolist() for gate, error in zip(track.gates, error_w, strict=False)]


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def summary(rows: list[dict], names: tuple[str, ...]) -> list[dict]:
    """Return one row per track, trouble and estimator: means over seeds, percentiles over seeds and gates, median CPU times."""
    result = []
    for track, trouble, name in every(
        dict.fromkeys(r["track"] for r in rows), dict.fromkeys(r["trouble"] for r in rows), names
    ):
        own = [r for r in rows if (r["track"], r["trouble"], r["estimator"]) == (track, trouble, name)]
        gates, shortest = np.concatenate([r["at_gates_m"] for r in own]), min(len(r["nees"]) for r in own)
        nees = np.array([r["nees"][:shortest] for r in own])
        whole, across = np.linalg.norm(gates, axis=1), np.linalg.norm(gates[:, 1:], axis=1)
        means = {
            key: float(np.mean([r[key] for r in own])) for key in ("p_rmse_m", "v_rmse_m_s", "attitude_rmse_deg", "nis")
        }
        result.append(
            {
                "track": track, "trouble": trouble, "estimator": name, "seeds": len(own), **means,
                "gates_p50_m": float(np.percentile(whole, 50)), "gates_p95_m": float(np.percentile(whole, 95)),
                "across_p95_m": float(np.percentile(across, 95)),
                "nees": float(np.mean(nees)), "nees_in_band": _in_band(nees),
                "nees_high": float(np.mean(nees > chi2.ppf(0.95, 9))),
                "sample_ms_p99": float(np.median([r["sample_ms_p99"] for r in own])),
                "image_ms_p99": float(np.median([r["image_ms_p99"] for r in own])),
            }
        )  # fmt: skip
    return result


def _in_band(nees: Array) -> float:
    """Return the fraction of times at which the mean over flights of NEES (flights, times) lies in its 95 % band."""
    n = len(nees)
    low, high = chi2.ppf([0.025, 0.975], 9 * n) / n
    mean = nees.mean(0)
    return float(np.mean((mean > low) & (mean < high)))


COLUMNS = (  # key, head, format
    ("track", "track", "13s"),
    ("trouble", "trouble", "23s"),
    ("estimator", "estimator", "15s"),
    ("seeds", "seeds", "5d"),
    ("p_rmse_m", "p rms m", "9.3f"),
    ("gates_p50_m", "gates p50", "9.3f"),
    ("gates_p95_m", "gates p95", "9.3f"),
    ("across_p95_m", "across", "9.3f"),
    ("v_rmse_m_s", "v rms m/s", "9.3f"),
    ("attitude_rmse_deg", "att deg", "9.2f"),
    ("nees", "NEES (9)", "9.1f"),
    ("nees_high", "> 95 %", "9.2f"),
    ("nees_in_band", "in band", "9.2f"),
    ("nis", "NIS", "9.2f"),
    ("sample_ms_p99", "IMU ms", "9.3f"),
    ("image_ms_p99", "frame ms", "9.3f"),
)


def table(rows: list[dict]) -> str:
    """Return the rows as aligned text, with a line of headings."""

    def width(form: str) -> str:
        return "<" + form.rstrip("s") if form.endswith("s") else ">" + form.split(".")[0].rstrip("d")

    head = " ".join(format(name, width(form)) for _, name, form in COLUMNS)
    return "\n".join([head, *(" ".join(format(r[key], form) for key, _, form in COLUMNS) for r in rows)])


def markdown(rows: list[dict], names: tuple[str, ...]) -> str:
    """Return the table of the README: p95 at the gates' planes per estimator; of the error-state filter across the flight too."""
    tracks, troubles = list(dict.fromkeys(r["track"] for r in rows)), list(dict.fromkeys(r["trouble"] for r in rows))
    found = {(r["track"], r["trouble"], r["estimator"]): r for r in rows}

    def one(track: str, trouble: str) -> str:
        own = [found[track, trouble, name] for name in names]
        eskf = next((r for r in own if r["estimator"] == "eskf"), own[-1])
        errors = " / ".join(f"{r['gates_p95_m']:.2f}" for r in own if r is not eskf)
        return (
            f"{errors} / {eskf['gates_p95_m']:.2f} ({eskf['across_p95_m']:.2f}) / {eskf['nees']:.1f} / {eskf['seeds']}"
        )

    lines = [["trouble", *tracks], ["---"] * (len(tracks) + 1)]
    lines += [[trouble, *(one(track, trouble) for track in tracks)] for trouble in troubles]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw(path: Path, rows: list[dict], names: tuple[str, ...]) -> None:
    """Plot p95 at the gates by trouble, one panel per track."""
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


def run(cases: list[EstimationCase], workers: int, kept: Path, tell: Callable[[int, int], None]) -> list[dict]:
    """Evaluate the cases missing in `kept`, a file with a line per case, append them, and return the rows of all cases."""
    lines = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {tuple(line["case"]): line["rows"] for line in lines}
    missing = [case for case in cases if case[:3] not in known]
    with ProcessPoolExecutor(workers) as pool, kept.open("a") as file:
        for k, (case, rows) in enumerate(zip(missing, pool.map(judged, missing, chunksize=4), strict=True)):
            known[case[:3]] = rows
            file.write(json.dumps({"case": case[:3], "rows": rows}) + "\n")
            file.flush()
            tell(k + 1, len(missing))
    return [row for case in known if case in {case[:3] for case in cases} for row in known[case]]


def main() -> None:
    """Evaluate all cases, and write tables and plot."""
    parser = argparse.ArgumentParser(description="Estimation errors by disturbance.")
    parser.add_argument("--tracks", nargs="+", default=list(TRACKS))
    parser.add_argument("--troubles", nargs="+", choices=TROUBLE_NAMES, default=TROUBLE_NAMES)
    parser.add_argument("--estimators", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plans", default="plans")
    parser.add_argument(
        "--out", type=Path, default=Path("logs/estimation"), help="folder of results; flights in it are not repeated"
    )
    a = parser.parse_args()
    names = tuple(a.estimators)
    for track in a.tracks:
        flight(track, a.plans, 0)  # makes the plans before the workers need them
    a.out.mkdir(parents=True, exist_ok=True)
    # Seed by seed, so that an interrupted run has equally many flights in all rows.
    cases = [
        (track, trouble, seed, a.plans, names) for seed, track, trouble in every(range(a.seeds), a.tracks, a.troubles)
    ]
    show = lambda k, n: print(f"\r{k}/{n}", end="", file=sys.stderr, flush=True)  # noqa: E731
    overall = summary(run(cases, a.workers, a.out / "flights.jsonl", show), names)
    print(f"\n{table(overall)}\n\n{markdown(overall, names)}")
    (a.out / "summary.json").write_text(json.dumps(overall, indent=2))
    draw(a.out / "estimation.png", overall, names)


if __name__ == "__main__":
    main()
