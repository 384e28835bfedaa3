"""Recorded flight on the true state: noise-free IMU samples at the real builds' rates, repeats included, exposures,
attitudes, and the truth at each of them. Estimators are evaluated on such records, so that integration errors due to sampling
are included.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from gate_racer.link.messages import Arm, AttitudeTarget, Imu
from gate_racer.link.profile import RateDivider, load_profile
from gate_racer.mpc.make import make_controller
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.planning import find_or_make_plan
from gate_racer.sim.physics.plant import P, Q, V
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import ImuParameters, Vehicle, load_vehicle

REST_S = 1.0  # s on the pad before the flight
# Multiple of the stamping clock and of the command rate, so that every stamp falls on a tick.
PHYSICS_HZ = 720.0
ASTRAY_M, ASTRAY_S = 0.05, 0.5  # std per axis and correlation time of the controller's position error
IDEAL = ImuParameters(0.0, 0.0, 0.0, 0.0)


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

    Raises:
        UserError: unknown track, or no plan could be made.
    """
    track, vehicle = load_track(f"tracks/{name}.yaml"), load_vehicle("dcl")
    plan = find_or_make_plan(Path(plans), track, vehicle, PlanOptions(), None)
    profile = replace(load_profile("dcl"), physics_hz=PHYSICS_HZ, race=None)
    simulator = Simulator(as_believed(track, replace(vehicle, imu=IDEAL)), profile, seed=0)
    controller = make_controller("tracking", plan, vehicle, track)
    rng, keep, off = np.random.default_rng([take, 6]), np.exp(-1 / (profile.command_hz * ASTRAY_S)), np.zeros(3)
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
            throttle = vehicle.throttle.throttle(control.u[3])
            simulator.command(AttitudeTarget(tuple(control.q_wb.tolist()), tuple(control.u[:3].tolist()), throttle))
        tick()
    assert race.status is RunStatus.FINISHED, race.cause
    fresh = RateDivider(profile.imu_fresh_hz, profile.imu_hz)
    new = np.array([k == 0 or fresh(k + 1) for k in range(len(samples))])
    x, t = np.array(truth), np.array([sample.t for sample in samples])
    go = simulator.path[0][0] - 1 / PHYSICS_HZ
    crossings = np.array([int(np.argmin(np.abs(t - go - at))) for at in race.gate_times_s])
    return track, vehicle, RecordedFlight(samples, new, t, x[:, P], x[:, Q], x[:, V], exposures, crossings)
