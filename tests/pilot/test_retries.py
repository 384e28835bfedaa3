"""A missed gate is recognised without the simulator's truth, and flown again."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.estimation.estimator import State
from gate_racer.link.messages import RaceStatus
from gate_racer.mpc.registry import make_controller
from gate_racer.pilot.flight import EndReason, Passages
from gate_racer.pilot.guidance import recovery
from gate_racer.pilot.guidance.recovery import (
    ACCEL_M_S2,
    TRY_S,
    GateRetries,
    Recovery,
    RecoveryStage,
    StatusWatch,
    brakes,
    missed_margin,
)
from gate_racer.planner.plan import read_plan
from gate_racer.sim.worlds.world import CourseDeviation, Deviations, World
from gate_racer.tracks.track import bars, load_track, stand
from tests.flights import DCL, flown_by, racer_of

GO, DT = 100.0, 1 / 60
STILL = (0.0, 0.0, 0.0)


def status(t, gate, start=GO):
    return RaceStatus(t, start, None, gate, None)


STATUSES = [  # passed by the estimate at, s since GO; the newest status; the gate that is missed
    ("nothing told", [1.0], None, None),
    ("all counted", [1.0, 2.0], status(GO + 2.3, 2), None),
    ("sent before the gate was passed", [1.0, 2.0], status(GO + 1.9, 1), None),
    ("sent soon after it: some count late", [1.0], status(GO + 1.9, 0), None),
    ("sent well after it", [1.0], status(GO + 2.1, 0), 0),
    ("two gates behind", [1.0, 2.0], status(GO + 2.3, 0), 0),
    ("more counted than the estimate has passed", [1.0], status(GO + 2.3, 2), None),
    ("of another race", [1.0, 2.0], status(GO + 2.3, 1, start=GO - 30), None),
]


@pytest.mark.parametrize(("passed", "told", "missed"), [row[1:] for row in STATUSES], ids=[row[0] for row in STATUSES])
def test_what_the_race_status_says_of_the_gates_passed(passed, told, missed):
    watch = StatusWatch()
    if told is not None:
        watch.receive(told)
    assert watch.missed(passed, GO) == missed


@pytest.mark.parametrize("late_s", [0.1, 0.7, 2.0])
def test_how_late_a_status_counts_is_learned_from_what_it_has_counted(late_s, monkeypatch):
    """Gates passed every 3 s, a status 4 times a second: from the second on none is missed that is counted as late as before."""
    monkeypatch.setattr(recovery, "STATUS_S", 5.0)
    watch, passed, period_s = StatusWatch(), [3.0, 6.0, 9.0], 0.25

    def missed(counts):
        """Seconds from the third passage to the first status that contradicts it, where so many are counted at the most."""
        for k in range(60):
            t = k * period_s
            watch.receive(status(GO + t, min(sum(t > at + late_s for at in passed), counts)))
            if watch.missed([at for at in passed if at <= t], GO) is not None:
                return t - passed[-1]
        return None

    assert missed(3) is None
    watch = StatusWatch()
    assert late_s < missed(2) < late_s + 4 * period_s


def test_a_delay_that_differs_from_gate_to_gate_hardly_ever_makes_a_miss():
    false, rng = 0, np.random.default_rng(2)
    for _ in range(100):
        watch, passed = StatusWatch(), np.cumsum(rng.uniform(0.6, 1.5, 16))
        counted = np.sort(passed + rng.uniform(0.25, 0.75, 16))
        times = np.arange(rng.uniform(0, 0.25), 25.0, 0.25)
        missed = []
        for t in times:
            watch.receive(status(GO + t, int((t > counted).sum())))
            missed.append(watch.missed(passed[passed <= t].tolist(), GO) is not None)
        false += any(missed)
    assert false <= 3


@pytest.mark.parametrize("speed", [4.0, 12.0, 25.0])
@pytest.mark.parametrize("sigma", [0.3, 0.9, 1.1, 2.0])
def test_a_gate_that_is_more_likely_missed_than_hit_is_braked_for_just_in_time(speed, sigma, vq1):
    gate, room_m = vq1.gates[2], 0.45
    cov = (sigma * room_m) ** 2 * np.eye(3)

    def braked(ahead_m):
        p_w, v_w = gate.p_wg - ahead_m * gate.R_wg[:, 0], speed * gate.R_wg[:, 0]
        state = State(GO, p_w, np.array([1.0, 0, 0, 0]), v_w, np.zeros(3), 1e-4 * np.eye(9), 0.0, cov)
        return brakes(gate, state, room_m)

    due_m = next((ahead_m for ahead_m in np.arange(40.0, 0.0, -0.1) if braked(ahead_m)), None)
    assert (due_m is not None) == (sigma > recovery.BLIND) and not braked(-1.0), "a gate behind needs no brake"
    if due_m is not None:
        stop_m = speed * recovery.BRAKE_S + speed**2 / (2 * recovery.BRAKE_M_S2)
        assert stop_m < due_m < stop_m + recovery.BRAKE_M + 0.1, "before the gate, and not earlier"
        assert not braked(0.9 * stop_m), "a vehicle that cannot stop flies on"


def test_who_touched_no_frame_was_within_or_beyond_it(vq1, dcl):
    """The limit lies where the vehicle would be inside of the frame, whichever way the estimate errs."""
    gate = vq1.gates[0]
    bar = (gate.outer_m - gate.opening_m) / 2
    assert -bar - dcl.contact_radius_m < missed_margin(gate) < dcl.contact_radius_m
    assert missed_margin(replace(gate, radius_m=0.75)) == 0.0


def flown_again(track, number, p_g, v_g, seen=True, lost_until=0.0):
    """A point that flies as is wanted of it, from a place and with a velocity in the gate's axes: its path, and the try."""
    gate = track.gates[number]
    recovery = Recovery(gate, track, 0.0)
    p, v, t, path, stages = gate.p_wg + gate.R_wg @ p_g, gate.R_wg @ np.array(v_g), 0.0, [], []
    while gate.crossing(path[-1] if path else p, p) is None or recovery.stage is not RecoveryStage.THROUGH:
        path.append(p)
        aim = recovery.aim(p, v, 0.1, t < lost_until, t)
        if recovery.stage not in stages:
            stages.append(recovery.stage)
        if seen and round(t / DT) % 2 == 0:
            recovery.record_sighting(t)
        most = 30.0 if recovery.stage is RecoveryStage.STOP else ACCEL_M_S2
        push = 2.0 * (aim.v_w - v)
        v = v + DT * push * min(1.0, most / max(np.linalg.norm(push), 1e-9))
        p, t = p + DT * v, t + DT
        if recovery.failed(t):
            return None, stages
    return np.array([*path, p]), stages


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("speed", [0.0, 20.0])
def test_from_anywhere_about_a_gate_it_is_flown_through_once_and_nothing_is_touched(number, speed, vq1):
    rng, gate = np.random.default_rng(number), vq1.gates[number]
    for _ in range(3):
        start = np.array([rng.uniform(1.0, 6.0), rng.uniform(2.2, 3.5) * rng.choice([-1, 1]), rng.uniform(-2.0, 0.0)])
        path, stages = flown_again(vq1, number, start, [speed, 0.0, 0.0])
        assert path is not None and stages[-1] is RecoveryStage.THROUGH
        passed = [k for k in range(1, len(path)) if gate.crossing(path[k - 1], path[k])]
        back = [gate.crossing(path[k], path[k - 1]) for k in range(1, len(path))]
        assert len(passed) == 1 and gate.crossing(path[passed[0] - 1], path[passed[0]]).margin > 0.4
        assert all(one is None or one.margin < 0 for one in back), "never through it from behind"
        assert min(bar.distance(path).min() for bar in bars(gate)) > 0.3


def test_a_post_of_another_gate_is_not_flown_into(vq1):
    gate = vq1.gates[1]
    x, y, z = (gate.p_wg + gate.R_wg @ [-6.5, 0.0, 0.0]).tolist()
    other = replace(vq1.gates[2], centre_m=(x, y, z - 4.0), stand_m=0.3)
    track = replace(vq1, gates=(*vq1.gates[:2], other, *vq1.gates[3:]))
    path, _ = flown_again(track, 1, [3.0, 2.5, 0.0], STILL)
    assert stand(track, 2).distance(path).min() > 0.5


def test_a_gate_that_is_not_seen_is_not_flown_through(vq1):
    path, stages = flown_again(vq1, 1, [3.0, 2.5, 0.0], STILL, seen=False)
    assert path is None and stages[-1] is RecoveryStage.LOOK


def test_a_lost_estimate_is_found_before_anything_is_flown_by_it(vq1):
    path, stages = flown_again(vq1, 1, [-12.0, 1.0, 0.0], [10.0, 0.0, 0.0], lost_until=4.0)
    assert path is not None and RecoveryStage.SEARCH in stages
    gate = vq1.gates[1]
    assert np.linalg.norm(path[round(3.9 / DT)] - path[round(2.0 / DT)]) < 1.5, "it waits"
    assert gate.local(path[-1])[0] >= 0


@pytest.mark.parametrize("off_m", [(0.0, 0.0, 0.0), (1.3, -1.0, 0.2), (-1.5, 1.4, -0.5), (0.3, 2.3, -1.2)])
def test_an_unseen_finish_is_searched_as_far_as_a_map_may_err(off_m):
    track, near, v = load_track("vq2"), np.inf, np.zeros(3)
    finish = track.gates[-1]
    recovery, p = Recovery(finish, track, 0.0), finish.p_wg + [0.0, 9.0, -1.0]
    for t in np.arange(0.0, TRY_S, DT):
        v = v + DT * np.clip(2.0 * (recovery.aim(p, v, 0.1, False, t).v_w - v), -6.0, 6.0)
        p = p + DT * v
        near = min(near, np.linalg.norm(p - finish.p_wg - off_m))
        assert p[2] < track.bounds.high_m[2] and min(bar.distance(p) for bar in bars(track.gates[-2])) > 0.3
    assert near < finish.half


@pytest.fixture
def retries(vq1, plan, dcl):
    return GateRetries(vq1, vq1.course(1), make_controller("mpcc", plan, dcl, vq1), dcl)


RESTING = State(GO, np.zeros(3), np.array([1.0, 0, 0, 0]), np.zeros(3), np.zeros(3), 1e-4 * np.eye(9), 0.0)


FINISHES = [  # newest status, s after the last gate; whether it is the finish; whether the last gate is flown again
    ("nothing tells", None, 0.0, True, False),
    ("counted", RaceStatus(GO + 6.1, GO, None, 6, None), 0.1, True, False),
    ("finished, with a finish that is no gate", RaceStatus(GO + 6.1, GO, 6.0, 5, None), 0.1, True, False),
    ("not yet counted", status(GO + 6.1, 5), 0.1, False, False),
    ("not counted", status(GO + 7.2, 5), 1.2, False, True),
    ("no status since", status(GO + 5.9, 5), 5.1, True, False),
]


@pytest.mark.parametrize(
    ("told", "after_s", "finished", "again"), [row[1:] for row in FINISHES], ids=[row[0] for row in FINISHES]
)
def test_the_last_gate_is_the_finish_if_the_race_status_does_not_contradict(told, after_s, finished, again, retries):
    passages = Passages()
    for k in range(1, 6) if told is not None else ():
        passages.times_s.append(float(k))
        retries.status.receive(status(GO + k + 0.2, k))
        assert retries.judge(k, False, passages, RESTING, GO + k + 0.3, GO) is None
    passages.times_s, passages.margins_m = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.4] * 6
    if told is not None:
        retries.status.receive(replace(told, t=told.t - 0.25))
        retries.status.receive(told)
    end = retries.judge(5, False, passages, RESTING, GO + 6.0 + after_s, GO)
    assert (end is not None and end.reason is EndReason.FINISHED) == finished
    assert (retries.recovery is None) == finished, "it brakes until then"
    assert len(passages.times_s) == 6 - again and len(passages.retries) == again


@pytest.mark.parametrize("told", [True, False], ids=["the status counts", "no status"])
def test_a_ball_is_searched_until_it_is_counted_if_anyone_counts(told, vq1, plan, dcl):
    track = replace(vq1, gates=(replace(vq1.gates[0], radius_m=0.3, visible=False), *vq1.gates[1:]))
    retries, passages = GateRetries(track, track.course(1), make_controller("mpcc", plan, dcl, vq1), dcl), Passages()
    if told:
        retries.status.receive(status(GO + 0.1, 0))
    assert not retries.searches_ball(track.gates[0], GO), "not searched before it was missed"
    end, t = None, GO
    while end is None and t < GO + 400.0:
        end, t = retries.judge(0, t == GO, passages, RESTING, t, GO), t + 1.0
    assert retries.searches_ball(track.gates[0], GO) == told
    assert end.reason is EndReason.BLIND and "gate 0, which no camera sees" in end.cause and t < GO + 100.0


def test_a_gate_that_is_never_passed_is_flown_at_again_and_again(retries):
    passages = Passages()
    assert retries.judge(0, True, passages, RESTING, GO, GO) is None
    assert [(one.gate, one.why) for one in passages.retries] == [(0, "passed outside of its opening")]
    assert all(retries.judge(0, False, passages, RESTING, GO + 1.1 * TRY_S * k, GO) is None for k in range(1, 20))
    assert len(passages.retries) == 20 and retries.recovery is not None, "only the run's time limit ends it"


LOST = replace(RESTING, cov=100.0 * np.eye(9))


@pytest.mark.parametrize("glimpse", [False, True])
def test_a_blind_hover_ends_after_a_while_without_a_glimpse(retries, glimpse):
    passages, times = Passages(), np.arange(0.0, 90.0 if glimpse else 31.0, 0.5)
    states = [RESTING if glimpse and k % 50 == 49 else LOST for k in range(len(times))]
    ends = [retries.judge(0, False, passages, state, GO + t, GO) for t, state in zip(times, states, strict=True)]
    assert retries.recovery is not None and not any(ends[:-2]), "first it looks for gates"
    if not glimpse:
        assert ends[-1].reason is EndReason.BLIND and "for 30 s" in ends[-1].cause


def test_a_gate_is_not_overdue_while_the_state_is_old(retries, plan):
    retries._controller.progress.theta = plan.gate_times_s[0] + 2 * recovery.OVERDUE_S
    assert retries.judge(0, False, Passages(), RESTING, GO + 1.0, GO) is None and retries.recovery is None
    assert retries.judge(0, False, Passages(), RESTING, GO, GO) is None and retries.recovery is not None


def test_a_gate_two_metres_off_the_map_ends_the_race_only_where_nothing_is_flown_again(sprint, dcl):
    track, plan = load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv")
    moved = tuple((track.gates[0].R_wg @ [0.0, 2.0, 1.0]).tolist()), STILL
    world = World.of("moved", Deviations(course=CourseDeviation(gate_moved_m=moved)), track, dcl)
    few_images = replace(DCL, video_hz=15.0)
    pilots = [racer_of(track, dcl, plan, few_images, retry=retry) for retry in (True, False)]
    again, once = (flown_by(pilot, world, dcl, few_images, 3) for pilot in pilots)
    assert again.status == "finished" and len(again.gate_times_s) == len(track.gates), again.cause
    assert once.status in ("missed_gate", "crashed") and not pilots[1].guidance.passages.retries
