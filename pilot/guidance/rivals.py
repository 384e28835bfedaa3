"""Racing others: whoever is behind keeps clear of the one ahead, and passes where both have room, in openings too.

Where rivals are is told or seen (`estimation.rivals`). They fly the same course, so each that may be passed, and each that is out
of sight for a moment, is predicted along one's own plan, at the pace at which it flew last. The one ahead flies as if alone; side
by side, who stands farther right on the start yields. Whether and on which side to pass is the best response to that prediction,
without a game about what the other may answer (the prediction-only baseline of Spica et al., T-RO 2020, and Wang et al., RSS
2019, whose own methods solve that game).
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from estimation.estimator import State
from estimation.rivals import RivalTracker
from link.messages import RivalState
from mpc.giving_way import P, Tube, aside
from mpc.reference import Reference
from perception.rival import RivalDetection
from pilot.guidance.passing_room import PassingRoom
from pilot.guidance.rival_line import AHEAD_S, HORIZON, SET_OFF_S, OwnFlight, Prospect, locate, reachable
from pilot.guidance.rival_memory import RivalMemory, flown_on
from vehicle.rotation import Array
from vehicle.vehicle import Vector

# Set by duels on VQ1 and the Split-S, where nothing else is said.
LEVEL_M = 0.3  # along the line, within which both count as side by side
NEAR_M = 8.0  # who is farther is no concern
ROOM_M = 1.5  # ahead, that is enough to share the line
IN_ROW = 1.2  # length over radius of the bell around one who has the line: 0.64 m from its centre on all sides of it
LURK_M = 0.4  # ... beyond `IN_ROW_M`, behind one that is to be passed: a leg is short
CLEAR_M = 0.4  # between the bodies' balls: errors of estimate, control and prediction
GIVE_UP_S = 1.0  # before which a pass that will not fit is given up: time enough to fall back behind
LEAST = 0.5  # of the plan's pace: no slower for anybody
FRESH_S = 0.2  # age up to which a rival is believed to fly on as it did
SLOWER = 0.04  # of the plan's pace: who flies less than that below it is not worth passing
IN_ROW_M = 0.25  # between the bodies' balls, beside or behind each other
OPENING_M = 0.2  # more in an opening, to which both come by lines of their own
BRAKING_M = 0.45  # likewise behind one that comes to a slower place: it brakes before its pace tells
SPARE_M = (
    0.15  # by which the room to go on with a pass may be less: who gives up half-way is beside the other in an opening
)
STEP_ASIDE_S = 0.4  # in which the line is left: 0.8 m by 20 m/s^2 there and as much back
ASIDE_M_S = 0.8 / STEP_ASIDE_S  # mean speed across the line then


class Known(enum.StrEnum):
    """What a pilot knows of its rivals."""

    UNKNOWN = "unknown"  # nothing
    TOLD = "told"  # where they are
    SEEN = "seen"  # what its camera shows of them


@dataclass(frozen=True)
class StartGrid:
    """Who stands where on the start, by a pilot's own lights."""

    place: int  # its own, from 1
    known: Known
    others_w: Mapping[int, Vector]  # m, world, of the rivals, by their places


@dataclass(frozen=True, slots=True)
class Way:
    """What to leave to others."""

    tubes: Sequence[Tube] = ()
    pace: float = math.inf  # the most


class RivalWatch:
    """Remembers where each rival was, and whom it is passing."""

    def __init__(self, grid: StartGrid, radius_m: float, room: PassingRoom, tracker: RivalTracker):
        """`radius_m` of the body, the rivals' as well."""
        self._place, self._room, self._memory = grid.place, room, RivalMemory(tracker, grid.others_w)
        self._reach_m, self._row_m = 2 * radius_m + CLEAR_M, 2 * radius_m + IN_ROW_M
        self._brake_m = 2 * radius_m + BRAKING_M
        self._passing: dict[int, Array] = {}  # (3,) unit vector: the side
        self._ahead: dict[int, bool] = {}  # whether it has the line

    def hear(self, told: RivalState) -> None:
        """Where one of them was."""
        self._memory.hear(told)

    def see(self, t: float, found: Sequence[RivalDetection], p_wb: Array, at: State) -> None:
        """What an image shows of them, as `RivalTracker.see` takes it."""
        self._memory.see(t, found, p_wb, at)

    def way(self, state: State, line: Reference, theta: float, pace: float, attainable: float) -> Way:
        """What is left to whom, by a pilot at theta, s, on its line, at this pace, with that pace attainable alone."""
        tubes, most = list[Tube](), math.inf
        own = OwnFlight.ahead(line, locate(line, state.p_wb, state.v_w, theta), pace, attainable)
        for before, number in self._memory.update(state.t, line, own.at.theta).items():
            for kept in (self._passing, self._ahead):
                if before in kept:
                    kept[number] = kept.pop(before)  # type: ignore[assignment]
        self._ahead = {number: ahead for number, ahead in self._ahead.items() if number in self._memory.known}
        for number, known in self._memory.known.items():
            age = max(state.t - known.t, 0.0)
            other = Prospect.of(known.rival.after(age), line, own, *known.sigmas_m(own.v_w / own.speed, age))
            off_w = other.path_w[0] - state.p_wb
            if off_w @ off_w > NEAR_M**2:
                self._passing.pop(number, None)
                continue
            tube = self._pass(number, other, own)
            if tube is None and self._yields(number, float(other.leads[0])):
                path_w = flown_on(known.estimate, age) if known.estimate is not None and age < FRESH_S else other.path_w
                tube = self._yield(path_w, path_w[0] - state.p_wb, other, own)
                most = min(most, max(self._pace_behind(other, own), LEAST))
            if tube is not None:
                tubes.append(replace(tube, times=state.t + HORIZON))
        return Way(tubes, most)

    def _yield(self, path_w: Array, off_w: Array, other: Prospect, own: OwnFlight) -> Tube | None:
        """The tube round one who has the line, its path_w (M, 3) and off_w (3,) m away, on the side on which one is.

        None where that leads into something.
        """
        across_w = off_w @ own.v_w / own.speed**2 * own.v_w - off_w
        reach_m = self._reach_m + other.across_m
        side_w = across_w / max(float(np.linalg.norm(across_w)), 1e-6)
        tube = Tube(HORIZON, path_w, reach_m, IN_ROW * reach_m + other.along_m, side_w, self._room.box_w)
        steps = aside(own.rows, HORIZON, [tube])
        led = steps.any(axis=1) & ~own.within
        return tube if self._room.free((own.rows[:, P] + steps)[led], spare_m=0.0) else None

    def _pace_behind(self, other: Prospect, own: OwnFlight) -> float:
        """The most with which to follow one who has the line; closer behind one that is to be passed, or sets off."""
        rival, apart_w = other.rival, other.apart_w
        near = rival.theta < SET_OFF_S or rival.mean_pace < own.fastest - SLOWER
        room_m = self._row_m + LURK_M if near else ROOM_M
        room_m = math.sqrt(max(room_m**2 - float(apart_w @ apart_w), 0.0)) + other.along_m
        return rival.pace + own.falls_back(float(other.leads[0]), room_m, self._brake_m)

    def _yields(self, number: int, lead: float) -> bool:
        """Whether a rival, `lead` m ahead, has the line: who was ahead keeps it, until the other is clear ahead."""
        before = self._ahead.get(number, lead > LEVEL_M or (lead > -LEVEL_M and number < self._place))
        self._ahead[number] = lead > self._reach_m or (before and lead > -self._reach_m)
        return self._ahead[number]

    def _pass(self, number: int, other: Prospect, own: OwnFlight) -> Tube | None:
        """The tube round which a rival is passed, if it is.

        Each side is tried on the prediction by what leads the line itself: openings cut the step aside, so that both go
        through one together only where it has room for two.
        """
        begun, lead, rival = self._passing.pop(number, None), float(other.leads[0]), other.rival
        slower = rival.mean_pace < own.fastest - SLOWER
        if lead < -self._reach_m or (begun is None and not slower):
            return None
        going_on, others = list[Array](), list[Array]()
        if begun is not None:
            across_w = begun - begun @ own.along[0] * own.along[0]
            going_on = [across_w / max(float(np.linalg.norm(across_w)), 1e-6)]
        if lead > self._reach_m:
            others = list(self._room.sides(own.along[0]))
        for sides, until_s in ((going_on, AHEAD_S), (others, AHEAD_S), (going_on, GIVE_UP_S)):
            best = self._round(sides, until_s, other, own, begun is not None)
            if best is not None:
                self._passing[number] = best.side_w
                return best
        return None

    def _round(
        self, sides: Sequence[Array], until_s: float, other: Prospect, own: OwnFlight, begun: bool
    ) -> Tube | None:
        """The tube to that of the sides, (3,) each, on which the line is left the least, and there is room until then, s.

        Once the rival is behind, the room is its concern.
        """
        leads, rival = other.leads, other.rival
        if not begun and not (leads < -LEVEL_M).any():
            return None
        reach_m = self._reach_m + other.across_m
        least_apart_m = self._row_m + other.across_m + OPENING_M * own.within - (SPARE_M if begun else 0.0)
        judged = (until_s > HORIZON) & (np.cumsum(leads < -self._row_m) == 0)
        in_open = judged & (np.abs(leads) < self._row_m) & ~own.within
        length_m = 2 * reach_m + STEP_ASIDE_S * max(own.fastest - rival.pace, 0.0) * own.speed
        best, least_m = None, np.inf
        for side in sides:
            tube = Tube(HORIZON, other.path_w, reach_m, length_m, side, self._room.box_w)
            steps = reachable(aside(own.rows, HORIZON, [tube]), HORIZON, ASIDE_M_S, float(own.at.off_w @ side))
            led_w, most_m = own.rows[:, P] + steps, float(np.linalg.norm(steps, axis=1).max())
            apart_m = np.linalg.norm(led_w - other.path_w, axis=1)
            if (apart_m < least_apart_m)[judged].any():
                continue
            if most_m < least_m and self._room.free(led_w[in_open], 0.0 if begun else SPARE_M):
                best, least_m = tube, most_m
        return best
