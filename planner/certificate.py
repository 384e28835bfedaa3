"""The proof that comes with a plan: it is flown again, measured against the world, and refused where anything is not as asked.

Nothing of the problem's constraints is used: `planner.replay` integrates with DOP853 where the problem has fixed Runge-Kutta
steps, `planner.sweep` has a geometry of its own, and everything is judged between the nodes too.
"""

from dataclasses import asdict, dataclass

import numpy as np

from planner.asked import body_half_m, flown, keep_clear, passage_m
from planner.limits import BLOCKS, MARGIN_TOLERANCE, TOLERANCES, broken_ends, broken_limits
from planner.model import P, Q, V
from planner.options import PlanOptions
from planner.plan import Plan, PlanError
from planner.replay import Replay, open_loop_gap, replay
from planner.search import Effort
from planner.sight import blind_times, seen_shares
from planner.sweep import Near, Passage, clearances, local, out_of_turn, passage, touched
from tracks.gate import Gate
from tracks.track import Track
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

VIEW_TOLERANCE = 0.02  # of a leg, since the view is asked for at the nodes
GAP_FACTOR, GAP_M = 2.0, 1e-3  # an open-loop gap up to so many times what the defects explain, and m, is none
COAST_MOST_M = 5.0  # straight on behind a last gate, looked at for leaving it
NODE_TOLERANCE_S = 1e-3  # between a gate's node and where its plane is crossed


@dataclass(frozen=True)
class Certificate:
    """What was proven. `status` is "certified", or says what failed."""

    status: str
    total_time_s: float
    gate_times_s: list[float]
    gate_margins_m: list[float]
    step_defect_m: float
    step_defect_m_s: float
    defects: dict[str, float]  # the largest of all intervals, by state
    tolerances: dict[str, float]  # of these
    open_loop_gap_m: float  # at the end, of the whole plan flown from its start without correction
    open_loop_explained_m: float  # what the defects explain of it
    clearance_m: float | None  # the least distance from the vehicle's centre to a solid; None: there is none
    clearance_of: str  # that solid
    clearance_t_s: float | None
    seen_share: list[
        float | None
    ]  # per gate, of the leg to it, with what `see` asks for in the picture; None: nothing to see
    blind_s: list[float | None]  # per gate, from the last full view of its opening to the crossing; None: never seen
    max_speed_m_s: float
    solver_status: str
    iterations: int
    build_s: float
    solve_s: float
    point_mass_bound_s: float | None
    guesses_s: dict[str, float | None]  # per first guess, the time of its optimum on a coarse mesh
    track_hash: str
    vehicle_hash: str
    plan_hash: str
    options: dict

    @property
    def ok(self) -> bool:
        return self.status == "certified"

    @property
    def verdict(self) -> str:
        """The status on one line of bearable length."""
        causes = self.status.split("; ")
        return "; ".join(causes[:3]) + (f"; and {len(causes) - 3} more" if len(causes) > 3 else "")

    def as_dict(self) -> dict:
        return asdict(self)


def certify(plan: Plan, track: Track, vehicle: Vehicle, options: PlanOptions, effort: Effort) -> Certificate:
    """Checks a plan, solved by an effort or read from a file, against its track and vehicle.

    Raises:
        PlanError: the plan holds numbers that are not finite.
    """
    if not all(np.isfinite(part).all() for part in (plan.t, plan.x, plan.u)) or (np.diff(plan.t) <= 0).any():
        raise PlanError("the plan holds numbers that are not finite, or times that do not rise")
    failures = [] if effort.success else [f"solver stopped with {effort.solver_status}"]
    course = flown(track, options)
    path = replay(plan, vehicle)
    defects = _defects(plan, path)
    failures += _broken_intervals(plan, defects) + _broken_form(plan, track, vehicle, course, options)
    failures += broken_limits(path.x, plan, track, vehicle, options)
    failures += broken_ends(plan, track, vehicle, options)
    gap, explained = open_loop_gap(plan, vehicle, path.off)
    if not gap <= GAP_FACTOR * explained + GAP_M:
        failures.append(f"flown in one go it ends {gap:.2g} m off, of which its defects explain {explained:.2g} m")
    t, p_w = _beyond(path, track, options, passage_m(vehicle, options))
    passages, failed = _passages(t, p_w, plan, course, vehicle, options)
    failures += failed + _broken_turns(t, p_w, track, course, passages, options)
    near, failed = _clearance(t, p_w, track, vehicle, options)
    failures += failed
    times = [one.t for one in passages]
    seen = seen_shares(path, course, times, vehicle.camera, options)
    failures += [
        f"gate {i} is in view over {share:.3f} of the leg to it instead of {options.see:g}"
        for i, share in enumerate(seen)
        if share is not None and share < options.see - VIEW_TOLERANCE
    ]
    largest = {name: float(values.max()) for name, values in defects.items()}
    return Certificate(
        status="certified" if not failures else "failed: " + "; ".join(failures),
        total_time_s=plan.total_time,
        gate_times_s=times,
        gate_margins_m=[one.margin_m for one in passages],
        step_defect_m=largest["position_m"],
        step_defect_m_s=largest["velocity_m_s"],
        defects=largest,
        tolerances={name: TOLERANCES[name] for name in largest},
        open_loop_gap_m=gap,
        open_loop_explained_m=explained,
        clearance_m=None if near is None else near.distance_m,
        clearance_of="" if near is None else near.solid,
        clearance_t_s=None if near is None else float(t[near.at]),
        seen_share=seen,
        blind_s=blind_times(path, course, times, vehicle.camera),
        max_speed_m_s=float(np.linalg.norm(path.x[:, V], axis=1).max()),
        track_hash=track.hash,
        vehicle_hash=vehicle.hash,
        plan_hash=plan.hash,
        options=asdict(options),
        solver_status=effort.solver_status,
        iterations=effort.iterations,
        build_s=effort.build_s,
        solve_s=effort.solve_s,
        point_mass_bound_s=effort.point_mass_bound_s,
        guesses_s=effort.guesses_s,
    )


def _defects(plan: Plan, path: Replay) -> dict[str, Array]:
    """(N,) per state, how far each interval ends from the next node. Of attitudes the angle between them."""
    found = {}
    for name, block in BLOCKS.items():
        if block.stop <= plan.x.shape[1]:
            found[name] = np.linalg.norm(path.off[:, block], axis=1) * (2.0 if block == Q else 1.0)
    return found


def _broken_intervals(plan: Plan, defects: dict[str, Array]) -> list[str]:
    """Sentences on the first interval that does not lead to the next node, for each state."""
    failures = []
    for name, values in defects.items():
        broken = ~(values <= TOLERANCES[name])
        if broken.any():
            leg = int(np.searchsorted(plan.gate_nodes, broken.argmax(), side="right"))
            what, unit = name.split("_", 1)
            failures.append(
                f"an interval on leg {leg} is off by {np.max(values):.1e} {unit.replace('_s', '/s').replace('s2', 's^2')}"
                f" of {what}, {TOLERANCES[name]:g} are tolerated"
            )
    return failures


def _broken_form(
    plan: Plan, track: Track, vehicle: Vehicle, course: tuple[Gate, ...], options: PlanOptions
) -> list[str]:
    """Sentences on what the file says of itself and is not so."""
    failures = []
    count = len(course) + (not options.flying_lap and (options.stop_m or track.end_m) is not None)
    nodes = np.array(plan.gate_nodes)
    if len(nodes) != count or (np.diff(nodes, prepend=0) < 0).any() or nodes[-1] != len(plan.t) - 1:
        failures.append(f"the gates' rows {list(plan.gate_nodes)} do not end the {count} legs of the course")
    if plan.laps != options.laps or plan.model != options.model:
        failures.append(
            f"it has {plan.laps} laps of the {plan.model} model instead of {options.laps} of {options.model}"
        )
    if plan.track_hash != track.hash or plan.vehicle_hash != vehicle.hash:
        failures.append("it was made for another track or vehicle")
    if not np.array_equal(plan.u[-1], plan.u[-2]):
        failures.append("the last row's inputs do not repeat the row before")
    return failures


def _beyond(path: Replay, track: Track, options: PlanOptions, length: float) -> tuple[Array, Array]:
    """Times and places (M, 3) of the path, and of what follows where it ends in a gate.

    A lap goes on as it began; else the vehicle flies straight on, as both controllers do.
    """
    p_w = path.x[:, P]
    if not options.flying_lap and (options.stop_m or track.end_m) is not None:
        return path.t, p_w
    v = path.x[-1, V]
    last = track.gates[-1]
    if last.is_ball:
        return path.t, p_w
    if options.flying_lap:
        leaves = np.flatnonzero(local(last, p_w)[:, 0] > length)
        count = int(leaves[0]) + 1 if len(leaves) else len(p_w)
        return np.append(path.t, path.t[-1] + path.t[1:count] - path.t[0]), np.vstack([p_w, p_w[1:count]])
    through = local(last, p_w[-1:] + v)[0, 0] - local(last, p_w[-1:])[0, 0]
    reach = min(1.01 * length * np.linalg.norm(v) / max(through, 1e-3), COAST_MOST_M) + 0.02
    steps = np.arange(1, int(reach / 0.02) + 2)[:, None] * 0.02
    speed = max(float(np.linalg.norm(v)), 1e-3)
    return np.append(path.t, path.t[-1] + steps[:, 0] / speed), np.vstack([p_w, p_w[-1] + steps * v / speed])


def _passages(
    t: Array, p_w: Array, plan: Plan, course: tuple[Gate, ...], vehicle: Vehicle, options: PlanOptions
) -> tuple[list[Passage], list[str]]:
    """How the gates are passed, in order, and sentences on those that are not."""
    found, failures, before = list[Passage](), list[str](), -1.0
    length, body = passage_m(vehicle, options), body_half_m(vehicle)
    for i, (gate, node) in enumerate(zip(course, plan.gate_nodes, strict=False)):
        when = float(plan.t[min(max(node, 0), len(plan.t) - 1)])
        if gate.is_ball:
            ends = plan.t[[max(node - 1, 0), min(node + 1, len(plan.t) - 1)]]
            one = touched(gate, t, p_w, *np.searchsorted(t, ends).tolist())
            planned = 0.0
        else:
            one = passage(gate, t, p_w, before, when, length, body)
            planned = keep_clear(vehicle, options)
            if not one.fault and abs(one.t - when) > NODE_TOLERANCE_S:
                failures.append(f"gate {i} is passed {one.t - when:+.3f} s from its row")
        if one.fault or one.margin_m < (-MARGIN_TOLERANCE if gate.is_ball else 0.0):
            failures.append(f"gate {i} {one.fault or 'is not passed'}")
        elif one.margin_m < planned - MARGIN_TOLERANCE:
            failures.append(f"gate {i} is passed with {one.margin_m:.3f} m instead of {planned:.3f} m")
        found.append(one)
        before = one.t
    return found, failures


def _broken_turns(
    t: Array, p_w: Array, track: Track, course: tuple[Gate, ...], passages: list[Passage], options: PlanOptions
) -> list[str]:
    """Sentences on openings that are flown through out of turn."""
    first = 0 if options.start is None else options.start.next_gate
    marks = [track.landmarks[(first + i) % len(track.gates)] for i in range(len(course))]
    meant = [(mark, one.t) for mark, one in zip(marks, passages, strict=False)]
    if options.flying_lap:
        meant.append((marks[-1], float(t[0])))
    if options.start is not None:  # which may lie within a gate
        meant += [(mark, float(t[0])) for mark in set(marks)]
    return out_of_turn(track, t, p_w, meant)


def _clearance(
    t: Array, p_w: Array, track: Track, vehicle: Vehicle, options: PlanOptions
) -> tuple[Near | None, list[str]]:
    """The solid that the path comes nearest to, and sentences on all that it comes too near to.

    The body may reach into the margin where it passes a frame's depth obliquely, never into its contact radius.
    """
    found, failures = clearances(track, p_w), []
    for near in found:
        need = max(vehicle.contact_radius_m, vehicle.half_diagonal) if near.frame else keep_clear(vehicle, options)
        if not near.distance_m >= need - MARGIN_TOLERANCE:
            failures.append(
                f"it comes within {near.distance_m:.3f} m of {near.solid} at {t[near.at]:.2f} s, {need:.3f} m are needed"
            )
    return min(found, key=lambda near: near.distance_m, default=None), failures
