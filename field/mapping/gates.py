"""Positions of the gates from images and IMU of flights: one robust least-squares problem.

    minimise  sum rho( |corner seen - project(x_k, corner of gate g)|^2 )  +  the chain of each flight  +  priors

over all states x_k of the flights (`field.mapping.trajectory`; camera tilt, clock offset and edge offset are part of them),
each gate's centre, yaw and pitch, the errors of their common size and depth, and the other uncertain parameters
(`field.mapping.doubt`): bundle adjustment with square landmarks of known size (Triggs et al. 2000), by reweighted
Gauss-Newton (Cauchy), with the states eliminated first. The pad is the origin, which fixes the gauge. Gates are almost
upright.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gate_racer.estimation.eskf.states import DELAY, FOCAL, TILT
from gate_racer.field.mapping.bundle import BLOCK, BY_ITSELF, Bundle, MappedGate, Sight, block
from gate_racer.field.mapping.doubt import SHARED, M, differs, specified, unknown
from gate_racer.field.mapping.sights import LoggedFlight, MapError
from gate_racer.field.mapping.trajectory import N, StateChain, first_guess
from gate_racer.perception.rims import GateAppearance
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import GateFrame
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

LEAST_SIGHTINGS = 4  # sightings required of a gate
MOST_STATES = 2000  # states per flight
NEAR_M = 3.0  # m from its centre, within which a gate is flown through
SAME_M = 1.5  # m, side of an opening: gates closer than this are one gate, seen first from two places or on two flights


@dataclass(frozen=True)
class Map:
    """All gates with enough sightings, and the estimated camera."""

    gates: list[MappedGate]
    chains: list[StateChain]
    tilt_deg: float
    delay_s: float  # s, exposure minus stamp
    edge_offset_m: float  # outward offset of the gates' edges from the nominal ones
    extra_depth_m: float  # excess of the frames' depth over the nominal one
    residual_px: float  # median distance between measured and predicted corners
    calibrated: bool  # camera and IMU were estimated, since they differ from the vehicle's file
    focal: float  # relative excess of the focal length over the file's


def map_gates(flights: Sequence[LoggedFlight], vehicle: Vehicle, frame: GateFrame, look: GateAppearance) -> Map:
    """Estimate all gates with enough sightings.

    Raises:
        MapError: no gate was found, or a flight shares none with the first.
    """
    given, doubt = (vehicle.camera, frame, look), unknown(vehicle, look)
    chains, gates = list[StateChain](), list[MappedGate]()
    for flight in flights:
        chain, front = first_guess(flight, vehicle.camera, frame.opening_m, look, MOST_STATES)
        own = list[MappedGate]()
        for mark in sorted(front.landmarks, key=lambda mark: -mark.seen):
            if not _is_known(mark.p_w, own):
                own.append(MappedGate(mark.p_w, mark.yaw, np.eye(BLOCK), mark.seen))
        if own and len(flights) > 1:  # the filter's map drifts by metres, too far to find the gates of another flight
            alone = Bundle([chain], own, *given, doubt)
            alone.solve(BY_ITSELF)
            chain, own = alone.chains[0], alone.gates
        if gates and not any(_is_known(gate.p_w, gates) for gate in own):
            raise MapError(
                f"{flight.path}: no gate coincides with one of {flights[0].path}: another course, pad or north?"
            )
        shared = [*chains, chain][0].states[0][SHARED] - chain.states[0][SHARED]
        chains.append(chain.moved(np.zeros((len(chain.states), N)), shared))
        gates += [gate for gate in own if not _is_known(gate.p_w, gates)]
    if not gates:
        raise MapError(f"{flights[0].path}: no complete opening was seen often enough to be mapped as a gate")
    free = Bundle(list(chains), list(gates), *given, doubt)
    cov, sights = free.solve()
    if differs(free.shared, cov[-M:, -M:]):
        return _map(free, cov, sights, vehicle.camera, calibrated=True)
    held = Bundle(chains, gates, *given, specified(vehicle))
    return _map(held, *held.solve(), vehicle.camera, calibrated=False)


def _map(bundle: Bundle, cov: Array, sights: Sequence[Sight], camera: Camera, calibrated: bool) -> Map:
    """Return the solution without gates that were seen too seldom."""
    counts = [sum(sight.gate == g for sight in sights) for g in range(len(bundle.gates))]
    gates = [
        replace(gate, cov=cov[block(g), block(g)], sightings=counts[g])
        for g, gate in enumerate(bundle.gates)
        if counts[g] >= LEAST_SIGHTINGS
    ]
    last = bundle.chains[0].states[-1]
    off = [np.linalg.norm(bundle.residual(sight)[0], axis=-1) for sight in sights]
    tilt, residual_px = camera.tilt_deg + math.degrees(float(last[TILT])), float(np.median(off)) if off else math.nan
    lens = calibrated, float(last[FOCAL])
    return Map(
        gates, bundle.chains, tilt, float(last[DELAY]), bundle.edge_offset_m, bundle.extra_depth_m, residual_px, *lens
    )


def _is_known(p_w: Array, gates: Sequence[MappedGate]) -> bool:
    """Return whether a gate is already near p_w."""
    return any(np.linalg.norm(p_w - gate.p_w) < SAME_M for gate in gates)


def passed_in_order(found: Map, frame: GateFrame) -> list[MappedGate]:
    """Return the gates flown through by the first flight, in order, each oriented along its first passage."""
    passed = []
    p = found.chains[0].path()[1]
    for gate in found.gates:
        near = np.flatnonzero(np.linalg.norm(p[:-1] - gate.p_w, axis=1) < NEAR_M).tolist()
        ways = [(gate.yaw, gate.pitch), (gate.yaw + math.pi, -gate.pitch)]
        openings = [Gate(tuple(gate.p_w.tolist()), math.degrees(yaw), 0.0, frame.opening_m) for yaw, _ in ways]
        for k, (opening, (yaw, pitch)) in itertools.product(near, zip(openings, ways, strict=True)):
            crossing = opening.crossing(p[k], p[k + 1])
            if crossing is not None and crossing.margin > 0:
                passed.append((k, replace(gate, yaw=math.remainder(yaw, 2 * math.pi), pitch=pitch)))
                break
    return [gate for _, gate in sorted(passed, key=lambda one: one[0])]
