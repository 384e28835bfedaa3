"""Planning again in flight: when it is asked for, what is taken over and what is left, and who plans."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.field.report.findings import findings
from gate_racer.field.report.flight import read_logged_flight
from gate_racer.mpc.control import CourseOffsets
from gate_racer.pilot.replanning import (
    APART_S,
    LATEST_S,
    STANDING_S,
    InlinePlanner,
    PlannerProcess,
    Replanning,
    VehicleEstimate,
)
from gate_racer.planner.models import C, P, V
from gate_racer.planner.replanning import Remainder, ReplanResult
from gate_racer.planner.task import PlanOptions
from tests.processes import raced

GO, DT = 100.0, 1 / 60
SURE = np.zeros((2, 2))


@pytest.mark.parametrize(
    ("scales", "cov", "worth"),
    [
        ((1.0, 1.0), SURE, False),
        ((1.0, 0.95), SURE, False),  # the controller's own pace makes as much of it
        ((1.0, 0.8), SURE, True),
        ((1.2, 1.0), SURE, True),
        ((0.85, 1.0), SURE, False),  # weaker: the same line, slower
        ((1.0, 1.4), SURE, False),
        ((1.0, 0.8), np.diag([0.0, 0.04]), False),  # nobody knows
        ((0.9, 0.72), np.full((2, 2), 0.04), True),  # their ratio is known better than either
    ],
)
def test_a_plan_is_asked_for_when_the_vehicle_surely_flies_better(scales, cov, worth):
    assert VehicleEstimate.of(np.array(scales), cov).worth_a_plan(VehicleEstimate()) == worth


def test_the_planned_parameters_are_no_reason_to_replan_and_those_of_the_vehicle_as_shown(dcl):
    known = VehicleEstimate.of(np.array([1.1, 0.6]), SURE)
    assert known.worth_a_plan(VehicleEstimate()) and not known.worth_a_plan(known)
    shown = VehicleEstimate(0.9, 0.7).vehicle(dcl)
    assert shown.thrust_max == pytest.approx(0.9 * dcl.thrust_max)
    assert shown.drag_quadratic_1_m == pytest.approx(0.7 * dcl.drag_quadratic_1_m)


class Followed:
    """A controller on the plan's own line, that of a vehicle with less drag; it does not steer."""

    def __init__(self, plan, vehicle, drag=0.7):
        self.t, self.x, _ = plan.dense(vehicle, 8)
        self.progress = SimpleNamespace(theta=0.0, pace=1.0, most=1.05)
        self.disturbance = SimpleNamespace(vehicle=(np.array([1.0, drag]), SURE))
        self.reference = SimpleNamespace(gate_times_s=plan.gate_times_s, offsets=CourseOffsets(plan.gate_times_s))
        self.off_m = 0.0
        self.followed = None

    def expected(self, t, ahead_s):
        x = np.array([np.interp(t - GO + ahead_s, self.t, column) for column in self.x.T])
        x[P] += self.off_m * np.cross(x[V] / np.linalg.norm(x[V]), [0.0, 0.0, 1.0])
        return x

    def follow(self, plan, vehicle, theta):
        self.followed = plan, vehicle, theta


class Planner:
    """Planner that answers as and when it is told to."""

    idle, latency_s = True, STANDING_S

    def __init__(self, change=lambda rest: {}):
        self.asked, self._change = [], change

    def ask(self, rest):
        self.asked.append(rest)

    def answer(self):
        change = self._change(self.asked[-1])
        rest = self.asked[-1]
        faster = ReplanResult(rest.plan, "", 0.8 * (rest.plan.total_time - rest.from_s), 20, 0.3)
        return None if change is None else replace(faster, **change)


def flown(plan, vq1, dcl, planner, controller=None, from_s=0.0, until_s=3.0):
    """A replanning asked once per command on the plan's line, between these times after GO, and its controller."""
    controller = controller or Followed(plan, dcl)
    replanning = Replanning(controller, plan, vq1, dcl, PlanOptions(), planner)
    for k in range(int(from_s / DT), int(until_s / DT)):
        controller.progress.theta = k * DT
        replanning.follow(GO + k * DT, GO)
        if controller.followed is not None:
            break
    return replanning, controller


def test_a_new_plan_begins_where_the_vehicle_will_be(plan, vq1, dcl):
    planner = Planner()
    replanning, controller = flown(plan, vq1, dcl, planner)
    (rest,), (made,) = planner.asked, replanning.made
    assert np.abs(plan.gate_times_s - rest.from_s).min() > APART_S
    assert rest.x[P] == pytest.approx(controller.expected(GO + rest.from_s, 0.0)[P], abs=1e-6)
    assert rest.x[C] <= rest.vehicle.thrust_max
    assert made.taken_s - made.asked_s == pytest.approx(STANDING_S, abs=1.1 * DT)
    _, vehicle, theta = controller.followed
    assert vehicle.drag_quadratic_1_m == pytest.approx(0.7 * dcl.drag_quadratic_1_m)
    assert theta == pytest.approx(made.taken_s, abs=2 * DT)  # in the plan's own time, the clock of this flight
    assert not made.why and made.after_s < made.before_s


def test_the_start_is_where_the_map_has_it_while_gates_stand_elsewhere(plan, vq1, dcl):
    planner, controller, offset = Planner(), Followed(plan, dcl), np.array([0.1, 0.2, -0.1])
    for number in range(len(plan.gate_nodes)):
        controller.reference.offsets.set_offset(number, offset, 0.0)
    flown(plan, vq1, dcl, planner, controller, from_s=plan.gate_times_s[0])  # before, it is led there from the pad
    rest = planner.asked[0]
    assert rest.x[P] == pytest.approx(controller.expected(GO + rest.from_s, 0.0)[P] - offset, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "off_m", "says"),
    [
        (lambda rest: None, 0.0, "no answer in time"),
        (lambda rest: {"status": "the solver stopped"}, 0.0, "the solver stopped"),
        (lambda rest: {"rest_s": rest.plan.total_time - rest.from_s}, 0.0, "saves only"),
        (lambda rest: {}, 5.0, "off the vehicle's state"),
    ],
)
def test_a_plan_that_is_late_wrong_slower_or_elsewhere_is_rejected_and_reported(plan, vq1, dcl, change, off_m, says):
    controller = Followed(plan, dcl)

    def answer(rest):
        controller.off_m = off_m  # the vehicle has been carried off meanwhile
        return change(rest)

    replanning, controller = flown(plan, vq1, dcl, Planner(answer), controller, until_s=STANDING_S + 2 * DT)
    assert controller.followed is None and replanning.plan is plan
    assert says in replanning.made[0].why and replanning.made[0].taken_s is None


def test_nobody_is_asked_who_is_busy_and_nothing_is_taken_over_once_the_plan_is_left(plan, vq1, dcl):
    busy = Planner()
    busy.idle = False
    assert not flown(plan, vq1, dcl, busy)[0].made and not busy.asked
    controller, planner = Followed(plan, dcl), Planner()
    replanning, _ = flown(plan, vq1, dcl, planner, controller, until_s=0.5)
    assert planner.asked
    replanning.forget()
    planner.idle = False
    for k in range(30, 120):
        replanning.follow(GO + k * DT, GO)
    assert controller.followed is None and not replanning.made


def test_a_process_plans_the_same_and_a_dead_one_leaves_the_flight_on_its_plan(plan, vq1, dcl):
    rest = Remainder(plan, float(plan.gate_times_s[-2]) + 0.1, plan.x[plan.gate_nodes[-2]], vq1, dcl, PlanOptions())
    process, here = PlannerProcess(rest), InlinePlanner()
    try:
        assert not process.idle and process.answer() is None  # it plans
        here.ask(rest)
        while not process.idle:
            time.sleep(0.01)
        theirs, ours = process.answer(), here.answer()
        assert process.latency_s <= LATEST_S  # of a horizon of 1 s
        assert theirs.status == ours.status and theirs.plan.hash == ours.plan.hash
        os.kill(process.worker.process.pid, signal.SIGKILL)
        process.ask(rest)
        assert process.asked.exception(10.0) is not None
        assert not process.idle and process.answer() is None
        replanning, controller = flown(plan, vq1, dcl, process)
        assert controller.followed is None and not replanning.made
    finally:
        process.close()


def test_a_vehicle_with_less_drag_is_flown_by_a_plan_of_its_own(plan, plan_folder, tmp_path, undrawn):
    world = tmp_path / "thin.yaml"
    world.write_text("name: thin\nworld: {plant: {drag_scale: 0.6}}\n", encoding="utf-8")
    keys = "--set", f"plan.folder={plan_folder}", "plan.replan=true"
    told = raced(tmp_path, "vq1", "--profile", "dcl", "--world", world, *keys)
    taken = [one for one in told["replans"] if one["taken_s"] is not None]
    assert taken and taken[0]["drag"] < 0.75 and taken[0]["after_s"] < taken[0]["before_s"]
    assert told["race_time_s"] < plan.total_time / 1.1  # more than a pace of 1.05 makes of it
    assert told["min_margin_m"] > 0.3 and not told["mpc_fallbacks"]
    assert told["tracking_rmse_m"] < 0.3  # off the plans that were flown
    assert "planned again" in told["printed"]
    said = [one.text for one in findings(read_logged_flight(Path(told["log"]))) if "Plan requested" in one.text]
    assert len(said) == len(told["replans"]) and any("taken over" in text for text in said)
