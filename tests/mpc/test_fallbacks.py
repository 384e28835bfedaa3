"""Whatever fails, a command goes out that can be flown: shifted solution, spare solver, geometric controller, brake."""

from dataclasses import replace

import numpy as np
import pytest
from loops import Failing, flown

from gate_racer.benchmarks.true_state import fly
from gate_racer.mpc import geometric
from gate_racer.mpc.control import Source
from gate_racer.mpc.controller import SHIFTED_LIMIT, STALE_S, PlanController
from gate_racer.mpc.reference import Reference
from gate_racer.mpc.solvers.portable import CasadiSolver
from gate_racer.planner.plan import read_plan
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X
from gate_racer.vehicle.rotation import matrix

Q, V = RATES_X["q"].at, RATES_X["v"].at


@pytest.mark.parametrize("failure", ["status", "nan"])
@pytest.mark.parametrize("spare", [True, False])
def test_a_failed_solve_falls_back_in_order_and_recovers(plan, dcl, problem, solver, control, failure, spare):
    failing = Failing(solver)
    controller = control(failing, CasadiSolver(problem, dcl) if spare else None)
    x = plan.x[30].copy()
    controller.progress.theta = float(plan.t[30])
    assert controller.step(0.0, x, 1 / 60).source is Source.SOLVED
    failing.status, failing.nan = (4, False) if failure == "status" else (0, True)
    sources = [controller.step(k / 60, x, 1 / 60) for k in range(1, SHIFTED_LIMIT + 4)]
    last = Source.SPARE if spare else Source.GEOMETRIC
    assert [c.source for c in sources] == [Source.SHIFTED] * SHIFTED_LIMIT + [last] * 3
    assert all(np.isfinite(c.u).all() and np.isfinite(c.q_wb).all() for c in sources)
    assert {c.reason for c in sources} == {"solver status 4" if failure == "status" else "the solution is not finite"}
    failing.status, failing.nan = 0, False
    assert controller.step(1.0, x, 1 / 60).source is Source.SOLVED


HOLES = [  # sentence, what is done to state, age and plan, words of the reason, last resort
    ("a state with NaN", lambda x: (x * np.nan, 0.0), None, "not finite", Source.LEVEL),
    ("a stale estimate", lambda x: (x, 2 * STALE_S), None, "older than", Source.LEVEL),
    ("a plan with a hole ahead", lambda x: (x, 0.0), 1.5, "reference is not finite", Source.GEOMETRIC),
    ("a plan with a hole here", lambda x: (x, 0.0), 0.5, "reference is not finite", Source.LEVEL),
]


@pytest.mark.parametrize("spoil, hole_s, words, last", [case[1:] for case in HOLES], ids=[case[0] for case in HOLES])
def test_bad_input_is_survived_and_never_reaches_the_wire(plan, dcl, vq1, problem, solver, spoil, hole_s, words, last):
    if hole_s is not None:
        kept = (plan.t < hole_s) | (plan.t > hole_s + 2.0)
        kept[list(plan.gate_nodes)] = True
        nodes = tuple(np.searchsorted(plan.t[kept], plan.t[list(plan.gate_nodes)]).tolist())
        plan = replace(plan, t=plan.t[kept], x=plan.x[kept], u=plan.u[kept], gate_nodes=nodes)
    controller = PlanController(plan, dcl, problem, solver, vq1.course(1), CasadiSolver(problem, dcl))
    controller.progress.theta = 0.7
    x = Reference(plan, dcl).sample(np.array([0.7]))[0]
    state = np.nan_to_num(np.concatenate([x[:10], np.zeros(4)]), nan=1.0)
    for k in range(SHIFTED_LIMIT + 3):
        control = controller.step(k / 60, *[spoil(state)[0], 1 / 60, spoil(state)[1]])
        assert np.isfinite(control.u).all() and np.isfinite(control.q_wb).all() and words in control.reason
        assert np.isfinite(controller.theta) and np.isfinite(controller.progress.pace)
    assert control.source is last


def test_without_a_plan_or_a_solver_it_brakes_to_a_hover(plan, dcl):
    x = plan.x[60].copy()
    speed = np.linalg.norm(x[V])
    for _ in range(600):
        x = flown(x, geometric.brake(x), dcl, 1 / 60)
        x[Q] /= np.linalg.norm(x[Q])
    assert speed > 20 and np.linalg.norm(x[V]) < 1.0
    assert matrix(x[Q])[2, 2] > 0.99 and x[13] == pytest.approx(GRAVITY, abs=0.5)


def test_a_race_without_any_solver_is_finished(sprint, dcl, problem, solver):
    """By the geometric controller, at a slow pace; by CasADi one is flown in `tests/pilot/test_bad_input.py`."""
    track, plan, failing = load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv"), Failing(solver)
    failing.status = 3
    controller = PlanController(plan, dcl, problem, failing, track.course(1))
    flight = fly(controller, plan, as_believed(track, dcl), dcl, seed=4, patience=4.0)
    assert flight.finished, flight.cause
    assert flight.margin_m > 0.35 and flight.fallbacks == len(flight.step_s)
    assert flight.time_s < 2.5 * plan.total_time
