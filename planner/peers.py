"""What peers publish, read as ours: their planning problems. World z up and body FLU there, NED and FRD here."""

from dataclasses import dataclass, replace
from pathlib import Path

from tracks.gate import Gate, Vector
from tracks.track import Bounds, Start, Track
from vehicle.config import ConfigError, load
from vehicle.vehicle import Rotors, Vehicle, load_vehicle

REACH_M = 100.0  # the files bound nothing but the floor


@dataclass(frozen=True)
class _Start:
    position: Vector
    velocity: Vector
    attitude: tuple[float, float, float, float]
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


def read_problem(path: str | Path) -> tuple[Track, Vehicle]:
    """A planning problem and the quadrotor in the `quad_*.yaml` beside it: waypoints passed within a tolerance, hover at the end.

    Raises:
        ConfigError: a missing or malformed file, or a start that is not at rest and level.
    """
    problem = load(path, _Problem)
    quads = sorted(Path(path).parent.glob("quad_*.yaml"))
    if len(quads) != 1:
        raise ConfigError(f"{path}: needs one quad_*.yaml beside it, found {len(quads)}")
    quad = load(quads[0], _Quad)
    if any((*problem.start.velocity, *problem.start.omega)) or problem.start.attitude != (1.0, 0.0, 0.0, 0.0):
        raise ConfigError(f"{path}: start: only a level start at rest is understood")
    bounds = Bounds((-REACH_M, -REACH_M, -REACH_M), (REACH_M, REACH_M, -quad.z_min))
    gates = tuple(Gate(_ned(gate.position), radius_m=problem.pass_tolerance, visible=False) for gate in problem.gates)
    start = Start(_ned(problem.start.position), 0.0)
    track = Track(problem.name, start, bounds, gates, False, _ned(problem.end.position), str(Path(path).resolve()))
    return track, _vehicle(quad, quads[0].stem)


def _ned(p: Vector) -> Vector:
    return (p[0], -p[1], -p[2])


def _vehicle(quad: _Quad, name: str) -> Vehicle:
    """The quadrotor in the body of `cpc`, whose camera and lags play no part in a rotor-level plan."""
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
        drag_linear_1_s=(linear[0], linear[1], linear[2]),
        rate_max_rad_s=(quad.omega_max_xy, quad.omega_max_xy, quad.omega_max_z),
    )
