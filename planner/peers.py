"""Reader of published planning problems (world z up, body FLU), converted to world NED, body FRD."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

from gate_racer.planner.options import Initial, PlanOptions
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Start, Track
from gate_racer.vehicle.config import ConfigError, load
from gate_racer.vehicle.rotation import Quaternion, Vector, to_euler
from gate_racer.vehicle.vehicle import Rotors, Vehicle, load_vehicle

REACH_M = 100.0  # m, half size of the bounds, since the files give the floor only (chosen)


@dataclass(frozen=True)
class _Start:
    position: Vector
    velocity: Vector
    attitude: Quaternion
    omega: Vector


@dataclass(frozen=True)
class _End:
    position: Vector
    condition: str


@dataclass(frozen=True)
class _Gate:
    position: Vector
    yaw_deg: float | None = None
    width: float | None = None
    height: float | None = None
    margin: float | None = None


@dataclass(frozen=True)
class _Problem:
    name: str
    start: _Start
    end: _End
    pass_tolerance: float
    gates: tuple[_Gate, ...]


@dataclass(frozen=True)
class _Quad:
    mass: float
    inertia: Vector
    arm_length: float
    moment_arm: float
    torque_coeff: float
    thrust_min: float
    thrust_max: float
    omega_max_xy: float
    omega_max_z: float
    drag: Vector
    gravity: float
    z_min: float


def read_problem(path: str | Path) -> tuple[Track, Vehicle, PlanOptions]:
    """Read a planning problem and the quadrotor in the `quad_*.yaml` beside it: waypoints with a tolerance, hover at the end.

    Raises:
        ConfigError: a missing or malformed file.
    """
    problem = load(path, _Problem)
    quads = sorted(Path(path).parent.glob("quad_*.yaml"))
    if len(quads) != 1:
        raise ConfigError(f"{path}: needs one quad_*.yaml beside it, found {len(quads)}")
    quad = load(quads[0], _Quad)
    bounds = Bounds((-REACH_M, -REACH_M, -REACH_M), (REACH_M, REACH_M, -quad.z_min))
    gates = tuple(Gate(_ned(gate.position), radius_m=problem.pass_tolerance, visible=False) for gate in problem.gates)
    begin = problem.start
    roll, pitch, yaw = (math.degrees(angle) for angle in to_euler(_frd(begin.attitude)))
    start = Initial(_ned(begin.position), _ned(begin.velocity), roll, pitch, yaw, _ned(begin.omega))
    pad = Start(start.position_m, yaw, pitch)
    track = Track(problem.name, pad, bounds, gates, False, _ned(problem.end.position), str(Path(path).resolve()))
    options = PlanOptions(model="rotors", reserve=1.0, see=0.0, bounds_clear=False, start=start, guesses=1)
    return track, _vehicle(quad, quads[0].stem), options


def _ned(p: Vector) -> Vector:
    """Convert a vector from world z up to z down, or body FLU to FRD: a half turn about x."""
    return (p[0], -p[1], -p[2])


def _frd(q: Quaternion) -> Quaternion:
    return (q[0], q[1], -q[2], -q[3])


def _vehicle(quad: _Quad, name: str) -> Vehicle:
    """Return the vehicle `cpc` with this quadrotor's rotors; camera and lags do not enter a rotor-level plan."""
    a, c = quad.moment_arm, quad.torque_coeff
    # Rotors 1 front right, 2 rear left, 3 rear right, 4 front left, as in rpg_time_optimal and TOGT.
    rotors = Rotors(quad.mass, quad.inertia, (a, -a, -a, a), (a, -a, a, -a), (c, c, -c, -c), quad.thrust_max)
    linear = tuple(d / quad.mass for d in quad.drag)
    base = load_vehicle("cpc")
    curve = replace(base.throttle, thrust_m_s2=(0.0, 4 * quad.thrust_max / quad.mass))
    return replace(
        base,
        name=name,
        rotors=rotors,
        throttle=curve,
        speed_max_m_s=math.inf,
        drag_linear_1_s=(linear[0], linear[1], linear[2]),
        rate_max_rad_s=(quad.omega_max_xy, quad.omega_max_xy, quad.omega_max_z),
    )
