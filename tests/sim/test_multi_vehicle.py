"""Several vehicles in one race: contacts, wake, what is seen of rivals, one GO, the order at the end, and UDP."""

import contextlib
import json
import math

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.link.client import ClientCodec
from gate_racer.link.messages import Arm, AttitudeTarget, Collision, Imu, RivalState
from gate_racer.link.sockets import bind_udp
from gate_racer.race.serving import MultiVehicleNarrator
from gate_racer.sim.multi_vehicle import MultiVehicleRace, MultiVehicleSetup, standings
from gate_racer.sim.physics.contact import body_of
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.traffic import (
    AIR_KG_M3,
    CollidingBody,
    Rival,
    Rotors,
    downwash,
    first_touch,
    impact,
    induced,
    rotors_of,
)
from gate_racer.sim.view.projected import ProjectedCamera
from gate_racer.sim.wire.server import Endpoint, LockstepServer
from gate_racer.sim.wire.station import Station
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import parse_place, place
from gate_racer.vehicle.vehicle import load_vehicle
from tests.sim.drawn import RACE
from tests.sim.peer import DCL, SPEC

DT = 1 / 120
LEVEL = np.array([1.0, 0.0, 0.0, 0.0])
ROTORS = Rotors(mass_kg=0.87, area_m2=4 * math.pi * 0.065**2)


@pytest.fixture
def race(vq1, dcl):
    world, two = as_believed(vq1, dcl), lambda **options: MultiVehicleSetup(**{"pilots": 2, **options})
    return lambda profile=SPEC, seed=0, **options: MultiVehicleRace(world, profile, seed, two(**options))


def state(p=(0.0, 0.0, 0.0), v=(0.0, 0.0, 0.0), omega=(0.0, 0.0, 0.0), thrust=0.0):
    return np.array([*p, *LEVEL, *v, *omega, thrust])


def mover(vehicle, p, v, omega=(0.0, 0.0, 0.0), fixed=False):
    """One that has flown so for a tick."""
    x = state(p, v, omega)[:13]
    return CollidingBody(body_of(vehicle), x[:3] - DT * x[7:10], x, fixed)


def energy(body, v, omega):
    return 0.5 * body.mass * v @ v + 0.5 * np.array(body.inertia) @ omega**2


@pytest.mark.parametrize("v_b", [(-8.0, 0.0, 0.0), (-8.0, 3.0, 1.0), (-30.0, 0.0, 0.0)])
def test_a_contact_keeps_momentum_and_gives_no_energy(dcl, v_b):
    a, b = mover(dcl, (0, 0, 0), (2.0, 0.0, 0.0), (1.0, -2.0, 0.5)), mover(dcl, (0.40, 0.1, 0.05), v_b)
    hit = impact(a, b, DT)
    assert hit is not None and hit.approach_m_s > 2 and hit.impulse > 0
    assert hit.a.dv_w * a.body.mass == pytest.approx(-hit.b.dv_w * b.body.mass)
    before = sum(energy(m.body, m.x[7:10], m.x[10:13]) for m in (a, b))
    after = sum(energy(m.body, m.x[7:10] + k.dv_w, m.x[10:13] + k.domega_b) for m, k in ((a, hit.a), (b, hit.b)))
    assert 0 < after < before


def test_bodies_part_by_restitution_and_do_not_overlap(dcl):
    a, b = mover(dcl, (0, 0, 0), (5.0, 0, 0)), mover(dcl, (0.41, 0, 0), (0.0, 0, 0))
    hit = impact(a, b, DT)
    assert hit is not None
    apart = (b.x[7:10] + hit.b.dv_w) - (a.x[7:10] + hit.a.dv_w)
    assert apart[0] == pytest.approx(dcl.contact.restitution * hit.approach_m_s)
    gap = (b.x[:3] + hit.b.shift_w) - (a.x[:3] + hit.a.shift_w)
    assert np.linalg.norm(gap) >= 2 * body_of(dcl).radius - 1e-9


def test_what_parts_or_passes_aside_does_not_touch_and_what_changes_places_has(dcl):
    assert impact(mover(dcl, (0, 0, 0), (0, 0, 0)), mover(dcl, (0.3, 0, 0), (4.0, 0, 0)), DT) is None
    assert impact(mover(dcl, (0, 0, 0), (0, 0, 0)), mover(dcl, (0.0, 0.45, 0), (30.0, 0, 0)), DT) is None
    assert first_touch(np.array([1.0, 0, 0]), np.array([-1.0, 0, 0]), 0.4) == pytest.approx(0.3)
    assert first_touch(np.array([1.0, 0.5, 0]), np.array([-1.0, 0.5, 0]), 0.4) is None


def test_who_stands_on_a_pad_is_not_moved(dcl):
    hit = impact(mover(dcl, (0, 0, 0), (0, 0, 0), fixed=True), mover(dcl, (0.41, 0, 0), (-5.0, 0, 0)), DT)
    assert hit is not None and not hit.a.dv_w.any() and not hit.a.shift_w.any() and not hit.a.domega_b.any()
    assert hit.b.dv_w[0] == pytest.approx((1 + body_of(load_vehicle("dcl")).restitution) * 5.0)


def test_a_hovering_disc_moves_air_by_momentum_theory():
    thrust = 0.87 * 9.81
    still = math.sqrt(thrust / (2 * AIR_KG_M3 * ROTORS.area_m2))
    assert induced(thrust, ROTORS.area_m2, np.zeros(3)) == pytest.approx(still)
    fast = induced(thrust, ROTORS.area_m2, np.array([20.0, 0.0, 0.0]))
    assert thrust == pytest.approx(2 * AIR_KG_M3 * ROTORS.area_m2 * fast * math.hypot(20.0, fast), rel=1e-3)
    assert induced(0.0, ROTORS.area_m2, np.zeros(3)) == 0


@pytest.mark.parametrize("z", [0.01, 1.0, 4.0])
def test_the_momentum_of_a_wake_is_the_thrust_at_every_depth(z):
    thrust_m_s2, r = 9.81, np.linspace(0.0, 3.0, 3000)
    w = np.array([downwash(state(thrust=thrust_m_s2), ROTORS, np.array([radius, 0.0, z]))[2] for radius in r])
    flow = AIR_KG_M3 * np.trapezoid(w**2 * 2 * math.pi * r, r)
    assert flow == pytest.approx(ROTORS.mass_kg * thrust_m_s2, rel=0.01)


def test_a_wake_lies_below_a_hoverer_and_behind_a_racer():
    hover, race = state(thrust=9.81), state(v=(25.0, 0, 0), thrust=9.81)
    below, above, behind, ahead = (np.array(p) for p in ((0, 0, 1.0), (0, 0, -1.0), (-2.0, 0, 0.3), (2.0, 0, 0)))
    assert downwash(hover, ROTORS, below)[2] > 5 and not downwash(hover, ROTORS, above).any()
    assert downwash(race, ROTORS, behind)[2] > 0.5 > downwash(race, ROTORS, below)[2]
    assert not downwash(race, ROTORS, ahead).any()


def test_a_wake_presses_down_the_vehicle_below_if_asked_for(vq1, dcl):
    swift = load_vehicle("swift")
    assert rotors_of(swift, 0.0) is None
    with pytest.raises(UserError, match="has no `rotors` section"):
        rotors_of(dcl, 0.065)
    falls = {}
    for radius in (0.0, 0.065):
        race = MultiVehicleRace(as_believed(vq1, swift), SPEC, 0, MultiVehicleSetup(pilots=2, rotor_radius_m=radius))
        for simulator, height in zip(race.simulators, (-5.0, -3.5), strict=True):
            simulator.plant.place(np.array([-5.0, 0.0, height]), LEVEL, np.zeros(3))
        hold = swift.throttle.throttle(9.81)
        for simulator in race.simulators:
            simulator.plant.command(0.0, AttitudeTarget((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), hold))
        fly(race, 0.6)
        falls[radius] = race.simulators[1].truth.x[9]
    assert falls[0.065] > falls[0.0] + 0.3, "it sinks in the downwash"


def test_a_rival_hides_the_corners_behind_it_and_no_others(vq1, dcl):
    camera = ProjectedCamera(vq1, dcl.camera, RACE, 0)
    gate, start = vq1.gates[0], vq1.start
    p_wb, q_wb = gate.p_wg - 8.0 * gate.R_wg[:, 0], start.q_wb
    corner = gate.p_wg + gate.R_wg @ np.array([0.0, 0.75, 0.75])

    def seen(share):
        at = p_wb + share * (corner - p_wb)
        rival = Rival(2, at, LEVEL, np.zeros(3), np.zeros(3), dcl.body_m, dcl.half_diagonal)
        visible = camera.visible(p_wb, q_wb)
        return visible.without(camera._behind((rival,), visible, p_wb, q_wb)).visible[0]

    assert camera.visible(p_wb, q_wb).visible[0].all()
    assert seen(0.3).sum() == 1, "of a hidden corner its neighbours miss a side"
    assert seen(1.5).all() and seen(-0.3).all(), "behind the gate and behind the eye it hides nothing"


def test_a_rival_is_drawn_where_it_is(vq1, dcl, draw):
    camera, still = draw(vq1), np.zeros(3)
    p_wb, q_wb = vq1.start.p_wb - [6.0, 0, 3.0], vq1.start.q_wb
    rival = Rival(2, p_wb + [-2.0, 0.3, -0.2], q_wb, still, still, dcl.body_m, dcl.half_diagonal)
    images = [camera.expose(p_wb, q_wb, still, still, 0.0, rivals) for rivals in ((), (rival,), ())]
    changed = np.argwhere((images[0] != images[1]).any(-1))
    eye_w, R_wc = dcl.camera.pose(p_wb, q_wb)
    centre = dcl.camera.project(((rival.p_wb - eye_w) @ R_wc)[None])[0]
    assert len(changed) > 300 and np.abs(changed.mean(0)[::-1] - centre).max() < 12
    assert (images[0] == images[2]).all()


def test_states_of_rivals_are_sent_only_where_asked_for(race):
    for published in (False, True):
        two = race(publish_states=published)
        sent = fly(two, 0.5)
        places = [{message.place for message in one if isinstance(message, RivalState)} for one in sent]
        assert places == ([{2}, {1}] if published else [set(), set()])
    last = next(message for message in reversed(sent[0]) if isinstance(message, RivalState))
    assert last.p_w == pytest.approx(two.simulators[1].truth.p_wb) and last.v_w == (0.0, 0.0, 0.0)


def fly(race, seconds, throttle=None):
    """Ticks; all that was sent, for each vehicle. `throttle` is that of each of them."""
    sent = [[] for _ in race.simulators]
    for _ in range(round(seconds * race.profile.physics_hz)):
        for k, simulator in enumerate(race.simulators):
            if throttle is not None:
                simulator.command(AttitudeTarget(tuple(simulator.truth.q_wb), (0.0, 0.0, 0.0), throttle[k]))
            sent[k] += simulator.tick().telemetry
        race.settle()
    return sent


@pytest.mark.parametrize("pilots", [1, 2])
def test_vehicles_that_do_not_meet_fly_as_if_alone(race, pilots):
    several = race(seed=4, pilots=pilots)
    last = several.simulators[-1]
    alone = Simulator(several.worlds[-1], SPEC, several.seeds[-1])
    for simulator in (*several.simulators, alone):
        simulator.command(Arm(True))
    several.settle()
    for _ in range(60):
        command, sent = AttitudeTarget((1.0, 0.0, 0.0, 0.0), (0.1, 0.2, 0.0), 0.5), {}
        for simulator in (*several.simulators, alone):
            simulator.command(command)
            sent[id(simulator)] = [message for message in simulator.tick().telemetry if isinstance(message, Imu)]
        several.settle()
        assert sent[id(alone)] == sent[id(last)]
    assert (alone.truth.x == last.truth.x).all() and alone.truth.x[2] < 0


def test_places_lie_side_by_side_around_the_track_s_start(vq1):
    starts = [place(vq1, k, 3, 2.0).start for k in (1, 2, 3)]
    assert starts[1].p_wb == pytest.approx(vq1.start.p_wb)
    to_the_right = starts[2].p_wb - starts[0].p_wb
    assert to_the_right == pytest.approx([0.0, -4.0, 0.0]), "the start looks south"
    ahead = place(vq1, 2, 3, 2.0, ahead_m=4.0).start.position_m
    assert np.array(ahead) - vq1.start.position_m == pytest.approx([-4.0, 0.0, 0.0], abs=1e-9), "the start looks south"
    assert place(vq1, 1, 1) is vq1 and parse_place("2/4:1.5") == (2, 4, 1.5)


def test_places_that_there_are_not_are_refused_in_a_line(vq1):
    for text in ("", "2", "2/", "0/2", "3/2", "1/9", "1/2:0", "1/2:99"):
        with pytest.raises(UserError, match=r"place|spacing"):
            place(vq1, *parse_place(text))
    with pytest.raises(UserError, match=r"nan m ahead: must be .* a finite lead"):
        place(vq1, 1, 2, 2.0, ahead_m=float("nan"))


def test_a_ready_vehicle_waits_for_all_and_go_is_the_same(race):
    two = race()
    two.simulators[0].command(Arm(True))
    fly(two, 0.5)
    assert not any(simulator.armed for simulator in two.simulators)
    two.simulators[1].command(Arm(True))
    fly(two, 0.1)
    assert all(simulator.armed for simulator in two.simulators)
    assert len({simulator.referee.race.go_t for simulator in two.simulators}) == 1


def test_a_countdown_begins_once_the_last_pilot_has_spoken(race):
    two = race(DCL)
    two.simulators[0].command(AttitudeTarget((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.0))
    fly(two, 8.0)
    late = two.t
    two.simulators[1].command(AttitudeTarget((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.0))
    fly(two, 7.0)
    go_t, due_t = [one.referee.race.go_t for one in two.simulators], late + DCL.race.lobby_s + DCL.race.countdown_s
    assert go_t == pytest.approx([due_t] * 2, abs=0.02)


def test_vehicles_that_touch_are_counted_once_and_race_on(race):
    two = race(spacing_m=0.5)
    for simulator in two.simulators:
        simulator.command(Arm(True))
    fly(two, 0.1)
    towards = [simulator.truth.p_wb * [0, 1, 0] for simulator in two.simulators]
    for simulator, aside in zip(two.simulators, (towards[1] - towards[0], towards[0] - towards[1]), strict=True):
        simulator.plant.place(simulator.truth.p_wb - [0, 0, 5.0], LEVEL, 4 * aside)
    two._observe()
    sent = fly(two, 0.3)
    assert [one.contacts for one in standings(two)] == [1, 1]
    assert two.encounters[0].approach_m_s == pytest.approx(4.0, rel=0.05)
    assert all(any(isinstance(message, Collision) for message in one) for one in sent)
    assert all(simulator.referee.race.status is RunStatus.RUNNING for simulator in two.simulators)


def test_gates_count_first_and_then_the_time_on_the_common_clock(race, tmp_path, capsys):
    three = race(pilots=3)
    narrate = MultiVehicleNarrator(three, tmp_path / "race.json")
    three.simulators[1].referee.note("2", 0.5, "commands before GO")
    for simulator, times in zip(three.simulators, ([1.5, 2.9], [1.4], [1.6, 2.8]), strict=True):
        race = simulator.referee.race
        race.status, race.go_t = RunStatus.CRASHED, 1.0
        race.gate_times_s, race.gate_margins_m = times, [0.3] * len(times)
    order = standings(three)
    assert [standing.pilot for standing in order] == [3, 1, 2] and [standing.rank for standing in order] == [1, 2, 3]
    narrate(0.0)
    told = capsys.readouterr().out.splitlines()
    assert any("pilot 2: 1 x" in line and "commands before GO" in line for line in told)
    assert any("pilot 2 crashed" in line for line in told) and sum("gate " in line for line in told) == 5
    assert narrate.news() == [], "nothing is told twice"
    assert [one["pilot"] for one in json.loads((tmp_path / "race.json").read_text())["standings"]] == [3, 1, 2]


def test_time_waits_for_every_client(race):
    codec, two = ClientCodec(SPEC), race()
    with contextlib.ExitStack() as stack:
        ears = [stack.enter_context(bind_udp("127.0.0.1", 0)) for _ in two.simulators]
        socks = [stack.enter_context(bind_udp("127.0.0.1", 0)) for _ in two.simulators]
        parts = zip(two.simulators, socks, ears, strict=True)
        endpoints = [Endpoint(Station(simulator), bound, ear.getsockname()) for simulator, bound, ear in parts]
        server = LockstepServer(two, endpoints, [None, None])

        stood = []
        ears[1].sendto(codec.encode(Arm(True), 0.0), socks[1].getsockname())

        def report(_):
            """Answer as both clients in the first pauses, then as the first one alone."""
            for ear, bound in list(zip(ears, socks, strict=True))[: 2 if server.pauses < 2 else 1]:
                ear.sendto(codec.hold(two.t), bound.getsockname())
            stood.append(two.t)
            server.stopped = server.pauses >= 4

        server.run(False, report)
    assert stood[0] < stood[-3] == stood[-1]
    assert [simulator.ready for simulator in two.simulators] == [False, True], "each client has its own vehicle"
