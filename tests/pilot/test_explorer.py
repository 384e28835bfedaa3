"""The explorer flies gate to gate without a map, and knows when to stop."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.bootcamp.scenario import generate_track
from gate_racer.estimation.estimator import State
from gate_racer.link.messages import Imu
from gate_racer.link.profile import load_profile
from gate_racer.pilot.flight import Phase
from gate_racer.pilot.guidance.velocity import Aim, Landing, VelocityController
from gate_racer.vehicle.dynamics import GRAVITY, drag
from gate_racer.vehicle.rotation import matrix, to_euler
from tests.exploring import explored

# Telemetry of a simulator that sends half as much of what an explorer uses, and nothing else.
LESS = {"imu_hz": 60.0, "imu_fresh_hz": 60.0, "motors_hz": 0.0, "local_position_hz": 0.0, "odometry_hz": 0.0}


def weak(vehicle):
    """A tenth less thrust than its file says."""
    return replace(
        vehicle, throttle=replace(vehicle.throttle, thrust_m_s2=tuple(0.9 * c for c in vehicle.throttle.thrust_m_s2))
    )


def test_it_flies_through_all_gates_without_attitude_and_with_less_thrust_than_it_was_told(dcl, tmp_path):
    track, profile = generate_track(12, 2), replace(load_profile("dcl"), attitude_hz=0.0, video_hz=10.0, **LESS)
    pilot, explorer, verdict, _ = explored(track, dcl, profile, 12, tmp_path, weak(dcl))
    assert verdict.status == "finished" and len(explorer.passed) == 2, (verdict.cause, pilot.cause)
    assert min(verdict.gate_margins_m) > 0.3


def test_where_there_is_no_gate_it_looks_around_and_lands(dcl, tmp_path):
    course = generate_track(1, 1)
    nothing = replace(course, gates=(replace(course.gates[0], visible=False),), name="nothing")
    few_images = replace(load_profile("spec"), video_hz=5.0, attitude_hz=60.0, **LESS)
    pilot, explorer, verdict, _ = explored(nothing, dcl, few_images, 1, tmp_path)
    assert pilot.phase is Phase.FINISHED and not explorer.passed
    assert pilot.cause == "no further gate in sight"
    p_w, v_w = verdict.x[-1, :3] - course.start.p_wb, verdict.x[-1, 7:10]
    assert np.linalg.norm(p_w[:2]) < 10.0 and abs(p_w[2]) < 0.3 and np.linalg.norm(v_w) < 2.5


def test_the_velocity_controller_hovers_leans_and_meets_the_whole_drag(dcl):
    x = np.array([0.0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    controller = VelocityController(dcl, turn_limit=2.0)
    u, _ = controller.input(x, Aim(np.zeros(3), 0.0), 0.01)
    assert u == pytest.approx([0, 0, 0, GRAVITY])
    u, q_wb = controller.input(x, Aim(np.array([1.0, 0.0, 0.0]), 0.0), 0.01)
    assert to_euler(q_wb)[1] < -0.1 and u[1] < 0  # nose down to go ahead
    vehicle = replace(dcl, drag_linear_1_s=(0.3, 0.2, 0.1))
    x = np.array([0.0, 0, 0, 1, 0, 0, 0, 9.0, -4.0, 2.0, 0, 0, 0, 0])
    aim = Aim(x[7:10], 0.0)
    u, q_wb = VelocityController(vehicle, turn_limit=2.0).input(x, aim, 0.01)
    par = vehicle.rates_parameters
    air = np.array(drag(x[3:7], x[7:10], par.drag_linear, par.drag_quadratic))
    thrust_w = -u[3] * matrix(q_wb)[:, 2]
    assert thrust_w + air + [0.0, 0.0, GRAVITY] == pytest.approx(np.zeros(3), abs=1e-5)


def test_a_thrust_that_is_not_as_told_is_learned_while_speed_is_gained(dcl):
    x = np.array([0.0, 0, 0, 1, 0, 0, 0, 0, 0, 0.3, 0, 0, 0, 0])
    controller, aim = VelocityController(dcl, turn_limit=2.0), Aim(np.array([8.0, 0.0, 0.0]), 0.0)
    lift = []
    for _ in range(100):
        u, q_wb = controller.input(x, aim, 0.01)
        lift.append(u[3] * matrix(q_wb)[2, 2])
    assert lift[-1] - lift[0] == pytest.approx(0.3, abs=0.05)  # TRIM_GAIN for a second


@pytest.mark.parametrize(("above_m", "landed"), [(0.1, True), (3.0, False)], ids=["near the floor", "in the air"])
def test_a_floor_that_carries_a_third_of_the_weight_is_felt_through_the_noise(above_m, landed, dcl):
    landing, rng = Landing(dcl, 0.0), np.random.default_rng(0)
    x = State(0.0, np.array([0.0, 0.0, -above_m]), np.array([1.0, 0, 0, 0]), np.zeros(3), np.zeros(3), np.eye(9), 0.0)
    for k in range(100):
        commanded = landing.step(x, 0.01 * k, 0.01).u[3]
        carried = GRAVITY / 3 if k > 10 else 0.0
        landing.receive(Imu(0.01 * k, -np.array([0.0, 0.0, commanded + carried]) + rng.normal(0, 0.7, 3), np.zeros(3)))
    assert landing.done == landed
