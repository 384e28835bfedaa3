"""VADR-TS-002, 3, 4.4 and 6 to 8: the environment, rates and the race."""

import math

import numpy as np

from gate_racer.link.client import LEAST_HEARTBEAT_HZ, RateGuard
from gate_racer.link.messages import Imu, LocalPosition
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.wire.station import COMMAND_RATE, DISARMED, HEARTBEAT_RATE
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import VADR_FRAME
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import matrix
from tests.sim.peer import HOVER
from tests.vadr.row import CAMERA, DCL, SPEC, VQ1, Row, flown, said


def environment() -> list[Row]:
    far = CAMERA.project(np.array([[1.0, 0.0, 1.0]]))[0]
    up = CAMERA.R_bc @ np.array([0.0, 0.0, 1.0])
    return [
        Row("3.2", "physics run at 120 Hz", lambda: SPEC.physics_hz == 120),
        Row("3.2", "gravity, thrust, drag and collisions act", lambda: flown(seconds=0.2).simulator.truth.accel_b[2] < -9),
        Row("3.3", "no absolute position is told unless asked for", lambda: said(LocalPosition) == 0),
        Row("3.5", "the same run twice is the same bytes", lambda: flown(seconds=0.2).sent == flown(seconds=0.2).sent),
        *(Row("3.6", f"the body's side {k} is {side} m", lambda k=k, side=side: DCL.body_m[k] == side)
          for k, side in enumerate((0.28, 0.28, 0.16))),
        Row("3.7", "the opening is 1500 mm", lambda: all(gate.opening_m == 1.5 for gate in VQ1.gates)),
        Row("3.7", "the gate is 260 mm deep", lambda: all(gate.depth_m == 0.26 for gate in VQ1.gates)),
        Row("3.7", "the outer side is 2720 mm, as broadcast, not 2700", lambda: VADR_FRAME.outer_m == 2.72),
        Row("3.8", "z of MAV_FRAME_LOCAL_NED points down", lambda: flown(HOVER, 1.0).simulator.truth.p_wb[2] < 0),
        Row("3.8", "the origin is fixed on the ground", lambda: abs(VQ1.start.p_wb[2]) < 0.03),
        Row("3.8", "the camera sits at the body's origin", lambda: not CAMERA.p_bc.any()),
        Row("3.8", "the camera looks 20 deg up", lambda: math.isclose(math.degrees(math.asin(-up[2])), 20)),
        Row("3.8", "the image has 640 x 360 px", lambda: (CAMERA.width_px, CAMERA.height_px) == (640, 360)),
        Row("3.8", "cx, cy are 320, 180 px", lambda: (CAMERA.cx_px, CAMERA.cy_px) == (320, 180)),
        Row("3.8", "fx, fy are 320 px", lambda: (CAMERA.fx_px, CAMERA.fy_px) == (320, 320)),
        Row("3.8", "the lens has no distortion", lambda: not CAMERA.lens.distorts),
        Row("3.8", "the 90 deg are the horizontal view", lambda: math.isclose(far[0], 640) and math.isclose(far[1], 180)),
        Row("3.8", "body to IMU is the identity", lambda: np.allclose(_on_pad(), -GRAVITY * matrix(VQ1.start.q_wb)[2], atol=0.5)),
    ]  # fmt: skip


def _on_pad() -> np.ndarray:
    """Return the accelerometer's reading at rest, m/s^2."""
    simulator = Simulator(as_believed(VQ1, DCL), SPEC, 0)
    return np.array(next(message.accel for message in simulator.tick().telemetry if isinstance(message, Imu)))


def _disqualified() -> bool:
    return flown(arm=False, strict=True).race.status is RunStatus.DISQUALIFIED


def timing() -> list[Row]:
    def guarded(hz: float) -> int:
        guard = RateGuard(SPEC.command_limit_hz)
        return sum(guard.admit(n / hz) for n in range(round(hz)))

    least_hz = min(LEAST_HEARTBEAT_HZ, SPEC.client_heartbeat_hz)
    rows = [
        Row("4.4", "the client's own set-points stay under 100 Hz", lambda: SPEC.command_hz < 100),
        Row("4.4", "the client sends 99 of 500 set-points of a second", lambda: guarded(500) == 99),
        Row("4.4", "the client's heartbeats come at over 2 Hz", lambda: least_hz > 2),
        Row("4.4", "no heartbeat at all is told of", lambda: HEARTBEAT_RATE in flown(beats=False).violations),
        Row("5.2", "heartbeats and set-points in time are not", lambda: not flown(seconds=2.0).violations),
        Row("6", "a set-point before arming is told of", lambda: DISARMED in flown(arm=False).violations),
        Row("6", "the simulator applies commands", lambda: flown(HOVER).simulator.truth.p_wb[2] < -0.2),
        Row("6", "and telemetry goes on", lambda: bool(flown(seconds=0.1).sent)),
        Row("7", "a strict referee disqualifies", _disqualified),
        Row("8.2", "start, gates in order, finish", lambda: len(VQ1.gates) == 6 and not VQ1.closed),
        Row("8.3", "a run may take 8 minutes", lambda: SPEC.run_limit_s == 480),
    ]
    for hz in (60, 90, 99, 100, 120, 500):
        rows.append(Row("4.4", f"{hz} Hz of set-points {'is too much' if hz >= 100 else 'is right'}",
                        lambda hz=hz: (COMMAND_RATE in flown(hz=hz, seconds=1.5).violations) == (hz >= 100)))  # fmt: skip
    return rows
