"""A gate flown again, by wanted velocities: stop -> search -> return -> look -> through.

    stop     against the motion, upwards, since the next gate must not be passed before this one
    search   on the spot, only while the estimate is lost: a turn all round, beginning where the map has the gate
    return   beside the frame, where it lies between, to a place before the gate
    look     there, until the gate was recognised in several images and the doubt is small
    through  straight along the gate's axis, slowly

Positions are those in which the gate stands as the plan has it, whatever it stands off the map.
"""

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mpc.geometric import limited
from pilot.guidance.velocity_controller import Aim
from tracks.gate import Gate
from tracks.solids import bars, of_obstacle
from tracks.track import Track
from vehicle.rotation import Array


class RecoveryStage(enum.StrEnum):
    STOP = "stop"
    SEARCH = "search"
    RETURN = "return"
    LOOK = "look"
    THROUGH = "through"


@dataclass(frozen=True, slots=True)
class RecoveryConfig:
    """How a gate is flown again. Set by hand on races in which one gate was moved by 2 m, unless named otherwise."""

    brake_share: float = 0.6  # of the vehicle's thrust, that may stop it
    turn_rad_s: float = 6.0  # of the body
    against_m_s: float = 8.0  # wanted backwards until it stands: the force does not fade with the speed
    climb_m_s: float = 2.0  # meanwhile
    standing_m_s: float = 1.5
    before_m: float = 6.5  # from the gate, where it is looked at: a level camera sees 9 deg below the horizon
    beside_m: float = 1.3  # from the frame, on the way past it
    clear_m: float = 1.0  # from all else that is on the map
    return_m_s: float = 5.0
    through_m_s: float = 4.0
    accel_m_s2: float = 6.0  # of these
    arrived_m: float = 0.7
    pull_1_s: float = 1.2  # distance to velocity
    centre_1_s: float = 1.8  # ... and towards the axis of the gate
    images: int = 8  # that show the gate, before it is flown through
    sure_m: float = 0.25  # standard deviation to the gate
    search_rad_s: float = math.radians(60.0)
    blank_s: float = 2.0  # before the gate without seeing it, after which it is looked for about its place
    sweep_rad: float = math.radians(50.0)  # ... so far to either side,
    sweep_s: float = 6.0  # ... in a period of so long,
    nod_m: float = 1.2  # ... and so far up and down
    astray_m: float = 0.45  # off the axis as the plane comes near, with which it is not flown through but returned,
    astray_slope: float = 0.15  # ... and by how much more for each metre before it
    past_m: float = 1.0  # before the plane it is too late to return
    try_s: float = 25.0  # after which a try has failed


class Recovery:
    """One try at a gate."""

    def __init__(self, gate: Gate, track: Track, t: float, config: RecoveryConfig):
        """`gate`: of the course; t (s): now."""
        self.stage, self.gate, self._config = RecoveryStage.STOP, gate, config
        self._begun = self._stage_t = t
        self._others = [bar for o in track.gates if o.has_frame and not o.same_frame(gate) for bar in bars(o)]
        self._others += [of_obstacle(one) for one in track.obstacles]
        self._low, self._high = np.array(track.bounds.low_m), np.array(track.bounds.high_m)
        self._hold: Array | None = None
        self._way: list[Array] = []
        self._seen = 0
        self._seen_t = t

    def failed(self, t: float) -> bool:
        """Whether it has taken too long."""
        return t - self._begun > self._config.try_s

    def saw(self, t: float) -> None:
        """An image showed the gate at t (s)."""
        self._seen, self._seen_t = self._seen + 1, t

    @property
    def accel_share(self) -> float:
        """Of the vehicle's thrust that may be used against the motion; 0: `accel_m_s2`."""
        return self._config.brake_share if self.stage is RecoveryStage.STOP else 0.0

    def aim(self, p_w: Array, v_w: Array, sigma_m: float, lost: bool, t: float) -> Aim:
        """What to fly at t (s), at p_w (3,) m with v_w (3,) m/s, the position to the gate in doubt by sigma_m."""
        config = self._config
        if self.stage is RecoveryStage.STOP:
            speed = float(np.linalg.norm(v_w))
            if speed > config.standing_m_s:
                back = -config.against_m_s * v_w / speed
                return Aim.towards(back - [0.0, 0.0, config.climb_m_s], self._yaw)
            self._change(RecoveryStage.SEARCH, p_w, t)
        if self.stage is RecoveryStage.SEARCH:
            if lost or sigma_m > 2 * config.sure_m:
                heading = self._bearing(p_w) + config.search_rad_s * (t - self._stage_t)
                return Aim.towards(self._to(self._hold, p_w), heading)
            self._way = self._around(p_w)
            self._change(RecoveryStage.RETURN, p_w, t)
        if self.stage is RecoveryStage.RETURN:
            while self._way and np.linalg.norm(self._way[0] - p_w) < config.arrived_m:
                self._hold = self._way.pop(0)
            if self._way:
                return Aim.towards(self._to(self._way[0], p_w), self._bearing(p_w))
            self._change(RecoveryStage.LOOK, p_w, t)
        if self.stage is RecoveryStage.LOOK:
            ready = self._seen >= config.images and sigma_m < config.sure_m and t - self._seen_t < config.blank_s / 4
            if not ready:
                return self._look(p_w, t)
            self._change(RecoveryStage.THROUGH, p_w, t)
        return self._through(p_w, t)

    def _change(self, stage: RecoveryStage, p_w: Array, t: float) -> None:
        self.stage, self._stage_t, self._seen = stage, t, 0
        if stage is RecoveryStage.LOOK:
            self._hold, self._seen_t = self._before, t
        elif stage is not RecoveryStage.THROUGH:
            self._hold = p_w.copy()

    def _look(self, p_w: Array, t: float) -> Aim:
        """From before the gate at its place; if it is not there, about that."""
        config, blank = self._config, t - max(self._seen_t, self._stage_t) - self._config.blank_s
        hold, heading = self._before, self._bearing(p_w)
        if blank > 0:
            phase = 2 * math.pi * blank / config.sweep_s
            heading += config.sweep_rad * math.sin(phase)
            hold = hold + [0.0, 0.0, config.nod_m * math.sin(phase / 2)]
        return Aim.towards(self._to(hold, p_w), heading)

    def _through(self, p_w: Array, t: float) -> Aim:
        """Along the axis, or back where that is too far aside."""
        config, p_g = self._config, self.gate.local(p_w)
        aside = float(np.linalg.norm(p_g[1:]))
        if p_g[0] < -config.past_m and aside > config.astray_m - config.astray_slope * p_g[0]:
            self._way = self._around(p_w)
            self._change(RecoveryStage.RETURN, p_w, t)
            return Aim.towards(self._to(self._before, p_w), self._yaw)
        v_g = np.array([config.through_m_s, 0.0, 0.0])
        v_g[1:] = limited(-config.centre_1_s * p_g[1:], config.through_m_s / 2)
        return Aim.towards(self.gate.R_wg @ v_g, self._yaw)

    @property
    def _yaw(self) -> float:
        """rad, of the flight through the gate."""
        x, y, _ = self.gate.R_wg[:, 0].tolist()
        return math.atan2(y, x)

    @property
    def _before(self) -> Array:
        """(3,) where the gate is looked at."""
        far = [self._config.before_m * share for share in (1.0, 0.85, 0.7, 0.55)]
        places = [self.gate.p_wg - d * self.gate.R_wg[:, 0] for d in far]
        return next((p_w for p_w in places if self._clearance([p_w]) > self._config.clear_m), places[-1])

    def _bearing(self, p_w: Array) -> float:
        """rad, towards the gate; along it where that is too near to tell."""
        x, y, _ = (self.gate.p_wg - p_w).tolist()
        return math.atan2(y, x) if math.hypot(x, y) > 1.5 else self._yaw

    def _to(self, place: Array | None, p_w: Array) -> Array:
        assert place is not None
        return limited(self._config.pull_1_s * (place - p_w), self._config.return_m_s)

    def _around(self, p_w: Array) -> list[Array]:
        """Places (3,) on the way to before the gate: past its frame by the side with the most room, then the nearest."""
        config, gate, goal = self._config, self.gate, self._before
        aside = max(gate.outer_m / 2, gate.half) + config.beside_m
        x, y, z = gate.local(p_w).tolist()
        if x < -config.beside_m:
            return [goal]
        ways = []
        for side in ((aside, 0.0), (-aside, 0.0), (0.0, -aside)):
            behind = np.array([max(x, config.beside_m), *side])
            ahead = np.array([-config.before_m / 2, *side])
            if max(abs(y), abs(z)) > aside:  # beside it already
                behind[1:] = ahead[1:] = y, z
            ways.append([gate.p_wg + gate.R_wg @ behind, gate.p_wg + gate.R_wg @ ahead, goal])
        return max(ways, key=lambda way: (min(self._clearance([p_w, *way]), config.clear_m), -_length([p_w, *way])))

    def _clearance(self, way: list[Array]) -> float:
        """m between a way and all that is on the map but the gate itself."""
        points = np.array(way)
        if len(way) > 1:
            s = np.linspace(0.0, 1.0, 12)[:, None]
            points = np.concatenate([a + s * (b - a) for a, b in zip(way, way[1:], strict=False)])
        walls = np.minimum(points - self._low, self._high - points).min()
        return float(min([walls, *(solid.distance(points).min() for solid in self._others)]))


def _length(way: Iterable[Array]) -> float:
    return float(np.linalg.norm(np.diff(np.array(list(way)), axis=0), axis=1).sum())
