"""A pilot passes a slower rival on VQ1: true state; the rival flies the plan at a share of its pace and yields to nobody."""

import numpy as np
import pytest

from estimation.estimator import State
from link.messages import AttitudeTarget, RivalState
from mpc.giving_way import P, V
from mpc.make import make_controller
from mpc.reference import Reference
from pilot.guidance.passing_room import PassingRoom
from pilot.guidance.rivals import RivalWatch
from sim.physics.contact import Colliders
from sim.physics.setting import make_plant, natural
from sim.referee import Referee
from tracks.grid import place

HZ, LIMIT_S, AHEAD_S = 120, 2.4, 0.3


@pytest.mark.parametrize(("share", "first"), [(0.8, True), (1.04, False)])
def test_a_slower_rival_is_passed_without_contact_and_an_equal_one_is_followed(vq1, dcl, plan, share, first):
    line, track = Reference(plan, dcl, vq1.course(1)), place(vq1, 2, 2)
    controller = make_controller("mpcc", plan, dcl, track)
    watch = RivalWatch(2, dcl.half_diagonal, PassingRoom(track, dcl.half_diagonal))
    plant, referee = make_plant(dcl, track.start, natural(dcl), Colliders(track)), Referee(track, 1, LIMIT_S)
    plant.armed, least_m, lead_m = True, np.inf, 0.0
    referee.go(0.0)
    for count in range(round(LIMIT_S * HZ)):
        t = count / HZ
        row, x = line.sample(np.array([share * (t + AHEAD_S)]))[0], plant.truth.x
        if count % 2 == 0:
            watch.hear(RivalState(t, 1, tuple(row[P]), tuple(share * row[V])))
            state = State(t, x[:3], x[3:7], x[7:10], x[10:13], np.zeros((9, 9)), 0.0)
            way = watch.way(state, controller.reference, controller.theta, controller.progress.pace)
            controller.give_way(way.tubes)
            controller.limit_pace(way.pace)
            control = controller.step(t, x, 2 / HZ)
            controller.prepare()
            throttle = dcl.throttle.throttle(control.u[3])
            plant.command(t, AttitudeTarget(tuple(control.q_wb), tuple(control.u[:3]), throttle, True))
        referee.watch(plant.truth, plant.advance((count + 1) / HZ))
        least_m = min(least_m, float(np.linalg.norm(plant.truth.p_wb - row[P])))
        lead_m = float((plant.truth.p_wb - row[P]) @ row[V]) / float(np.linalg.norm(row[V]))
    assert least_m > 2 * dcl.half_diagonal + 0.1
    assert (lead_m > 1.0) is first and (lead_m < -1.0) is not first
    assert len(referee.race.gate_times_s) >= 1 and min(referee.race.gate_margins_m) > 0.3
