"""Where the gates stand, from what a camera saw on flights and the IMU: one robust least-squares problem.

    minimise  sum rho( |corner seen - project(x_k, corner of gate g)|^2 )  +  the chain of each flight  +  priors

over all states x_k of the flights (`field.mapping.trajectory`; camera tilt, clock offset and the edges' error are part of them),
each gate's centre, yaw and pitch, the errors of their common size and depth, and what is not known else (`field.mapping.doubt`):
bundle adjustment with square landmarks of known size (Triggs et al. 2000), by Gauss and Newton, reweighted (Cauchy), the states
eliminated first. The pad is the origin, so nothing is free. Gates stand nearly upright.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from estimation.eskf.states import DELAY, FOCAL, TILT
from field.mapping.bundle import BLOCK, Bundle, MappedGate, Sight, block
from field.mapping.doubt import M, as_told, differs, unknown
from field.mapping.sights import LoggedFlight, MapError
from field.mapping.trajectory import StateChain, first_guess
from perception.rims import GateAppearance
from tracks.gate import Gate
from tracks.track import GateFrame
from vehicle.camera import Camera
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

LEAST_SIGHTINGS = 4  # of a gate
MOST_STATES = 2000  # of a flight
NEAR_M = 3.0  # from its centre a gate is flown through
SAME_M = 2.0  # gates nearer to each other than that are one, first seen from two places or on two flights


@dataclass(frozen=True)
class Map:
    """All gates that were seen well, and what the camera turned out to be."""

    gates: list[MappedGate]
    chains: list[StateChain]
    tilt_deg: float
    delay_s: float  # of the exposure after its stamp
    swell_m: float  # by which the gates' edges lie outside of the nominal ones
    deeper_m: float  # by which the frames' depth exceeds the nominal one
    residual_px: float  # median distance of a corner from where it should be seen
    doubted: bool  # whether camera and IMU turned out to be other than the vehicle's file says
    focal: float  # share by which the focal length exceeds that of the file


def map_gates(flights: Sequence[LoggedFlight], vehicle: Vehicle, frame: GateFrame, look: GateAppearance) -> Map:
    """Estimates all gates that the flights saw often enough.

    Raises:
        MapError: there are none, or a flight shares none with the first.
    """
    chains, gates = [], list[MappedGate]()
    for flight in flights:
        chain, front = first_guess(flight, vehicle.camera, frame.opening_m, look, MOST_STATES)
        chains.append(chain)
        marks = sorted(front.landmarks, key=lambda mark: -mark.seen)
        if gates and not any(_stands(mark.p_w, gates) for mark in marks):
            raise MapError(
                f"{flight.path}: none of its gates stands where {flights[0].path} has one: another course, pad or north?"
            )
        for mark in marks:
            if not _stands(mark.p_w, gates):
                gates.append(MappedGate(mark.p_w, mark.yaw, np.eye(BLOCK), mark.seen))
    if not gates:
        raise MapError(f"{flights[0].path}: no opening was seen whole and often enough to be a gate")
    given = vehicle.camera, frame, look
    free = Bundle(list(chains), list(gates), *given, unknown(vehicle, look))
    cov, sights = free.solve()
    if differs(free.shared, cov[-M:, -M:]):
        return _map(free, cov, sights, vehicle.camera, doubted=True)
    held = Bundle(chains, gates, *given, as_told(vehicle))
    return _map(held, *held.solve(), vehicle.camera, doubted=False)


def _map(bundle: Bundle, cov: Array, sights: Sequence[Sight], camera: Camera, doubted: bool) -> Map:
    """What was solved, without gates that were seen too seldom."""
    counts = [sum(sight.gate == g for sight in sights) for g in range(len(bundle.gates))]
    gates = [
        replace(gate, cov=cov[block(g), block(g)], sightings=counts[g])
        for g, gate in enumerate(bundle.gates)
        if counts[g] >= LEAST_SIGHTINGS
    ]
    last = bundle.chains[0].states[-1]
    off = [np.linalg.norm(bundle.residual(sight)[0], axis=-1) for sight in sights]
    tilt, residual_px = camera.tilt_deg + math.degrees(float(last[TILT])), float(np.median(off)) if off else math.nan
    lens = doubted, float(last[FOCAL])
    return Map(gates, bundle.chains, tilt, float(last[DELAY]), bundle.swell_m, bundle.deeper_m, residual_px, *lens)


def _stands(p_w: Array, gates: Sequence[MappedGate]) -> bool:
    """Whether one of the gates stands there already."""
    return any(np.linalg.norm(p_w - gate.p_w) < SAME_M for gate in gates)


def passed_in_order(found: Map, frame: GateFrame) -> list[MappedGate]:
    """The gates that the first flight has flown through, in that order, each turned the way of its first passing."""
    passed = []
    p = found.chains[0].path()[1]
    for gate in found.gates:
        for yaw, pitch in ((gate.yaw, gate.pitch), (gate.yaw + math.pi, -gate.pitch)):
            opening = Gate(tuple(gate.p_w.tolist()), math.degrees(yaw), 0.0, frame.opening_m)
            near = np.flatnonzero(np.linalg.norm(p[:-1] - gate.p_w, axis=1) < NEAR_M)
            for k in near.tolist():
                crossing = opening.crossing(p[k], p[k + 1])
                if crossing is not None and crossing.margin > 0:
                    passed.append((k, replace(gate, yaw=math.remainder(yaw, 2 * math.pi), pitch=pitch)))
                    break
    return [gate for _, gate in sorted(passed, key=lambda one: one[0])]
