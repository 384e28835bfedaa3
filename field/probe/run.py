"""`probe-link`: behaviour of an unknown simulator, at rest and in flight, compared with a wire profile.

The probe flight runs in real time: arm, fly the script, stop the motors in any case, evaluate.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

from pymavlink.dialects.v20 import common as dialect

from gate_racer.common.command import remark, require_outputs, write_json
from gate_racer.common.config import names, write
from gate_racer.common.settings import settings_of
from gate_racer.field.files import DIGITS
from gate_racer.field.probe.check import Check, CheckVerdict, table
from gate_racer.field.probe.cli import AUTO, ProbeSettings
from gate_racer.field.probe.findings import best, flight_checks, probe, unflown
from gate_racer.field.probe.flight import LEGACY, RAD_S, ProbeFlight
from gate_racer.field.probe.links import RawLink, ReceivedMessages, is_armed, listen
from gate_racer.field.probe.motion import Order, rest_of
from gate_racer.link.mavlink import milliseconds
from gate_racer.link.profile import FOLDER, Profile, load_profile
from gate_racer.pilot.live import as_ctrl_c
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

ARM_LIMIT_S = 3.0  # s, longest wait for arming (chosen)
WAIT_S = 20.0  # s, longest wait for the first message (chosen)
LONGEST_S = 45.0  # s, longest probe flight (chosen)
STOPS = 5  # repetitions of the stop command, as UDP may lose datagrams
STOP_S = 0.1  # s between them
LEVEL = (1.0, 0.0, 0.0, 0.0)  # attitude that the type masks exclude


def fly_probe(
    link: RawLink, received: ReceivedMessages, profile: Profile, vehicle: Vehicle, so_far: Profile
) -> tuple[list[Check], Profile, str]:
    """Fly; return the checks, `so_far` extended, and why there was no flight or it ended early, empty if all went well."""
    rest = rest_of(received)
    if not received.go:
        return [], so_far, "no race was started; start the probe before the countdown of a race"
    if rest is None or not rest.still:
        return [], so_far, "the vehicle is not at rest, or the accelerometer does not show gravity"
    if not received.images:
        return [], so_far, "no images were received, so the signs of rotation cannot be determined"
    mask = RAD_S if profile.rates_rad_s_bit else LEGACY
    flight = ProbeFlight(rest, vehicle.camera, mask, profile.signs.gyro)
    flown = ReceivedMessages(0.0)
    try:
        with as_ctrl_c():
            _arm(link, flown)
            _fly(link, flown, flight)
    finally:
        _stop(link, flown, mask)
    checks, found = flight_checks(flight, profile, vehicle, so_far)
    return checks, found, flight.end


def _arm(link: RawLink, flown: ReceivedMessages) -> None:
    """Request arming until the heartbeat reports it. A simulator that never does is flown as well."""
    begin = link.now()
    while (now := link.now()) - begin < ARM_LIMIT_S:
        link.keep_alive(now)
        link.arm(now)
        link.poll(flown)
        if flown["HEARTBEAT"] and is_armed(flown["HEARTBEAT"][-1][1]):
            return


def _fly(link: RawLink, flown: ReceivedMessages, flight: ProbeFlight) -> None:
    begin = link.now()
    while not flight.over and link.now() - begin < LONGEST_S:
        messages, frames = link.poll(flown, 0.01)
        for arrival, message in messages:
            flight.receive(arrival, message)
        for arrival, frame in frames[-1:]:
            flight.see(arrival, frame)
        now = link.now()
        link.keep_alive(now)
        order = flight.act(now)
        if order is not None:
            link.send(_target(link.target, order, now - flight.offset_s))


def _stop(link: RawLink, flown: ReceivedMessages, mask: int) -> None:
    for _ in range(STOPS):
        link.send(_target(link.target, Order(mask, (0.0, 0.0, 0.0), 0.0), 0.0))
        link.arm(link.now(), False)
        link.poll(flown, STOP_S)


def _target(target: Sequence[int], order: Order, stamp: float) -> object:
    fields = milliseconds(max(0.0, stamp)), *target, order.mask, LEVEL, *order.rates, order.throttle
    return dialect.MAVLink_set_attitude_target_message(*fields)


MAVLINK_PORT, VIDEO_PORT = 14550, 5600


def run(arguments: argparse.Namespace) -> int:
    """Probe the simulator and print the checks; return 1 if one differs from the profile. Raises UserError without a link."""
    settings = settings_of(arguments, ProbeSettings)
    asked = settings.link
    require_outputs((settings.out, arguments.json), asked.profile, FOLDER / f"{asked.profile}.yaml", settings.vehicle)
    known = [load_profile(name) for name in (names(FOLDER) if asked.profile == AUTO else [asked.profile])]
    vehicle = load_vehicle(settings.vehicle)
    with RawLink(asked.opened(MAVLINK_PORT, VIDEO_PORT)) as link:
        received = listen(link, settings.seconds, WAIT_S, settings.fly)
        profile = best(received, known)
        checks, found = probe(received, profile)
        why = "" if settings.fly else "fly=false was set"
        flown: list[Check] = []
        if settings.fly:
            flown, found, why = fly_probe(link, received, profile, vehicle, found)
        found = link.on_its_ports(found)
    flown_or_not = flown or unflown()
    repeated = {check.name for check in flown_or_not}
    checks = [*(check for check in checks if check.name not in repeated), *flown_or_not]
    print(f"compared with profile {profile.name}:")
    print(table(checks))
    others = sorted(set(received.messages) - {"HEARTBEAT", "HIGHRES_IMU", "ATTITUDE"})
    rates = ", ".join(f"{kind} {len(received[kind]) / received.seconds:.1f} Hz" for kind in others)
    print(f"also received: {rates or 'nothing'}")
    write_json(arguments.json, {"profile": profile.name, "checks": checks, "flown": bool(flown), "cause": why})
    if why:
        print(f"flight ended early: {why}" if flown else f"no flight: {why}")
    if settings.out is not None:
        source = f"Probed; values that were not measured are those of {profile.name}."
        write(settings.out, replace(found, name=settings.out.stem, source=source), DIGITS)
        doubtful = "; repeat the probe: gains of a part of the flight may be wrong" if flown and why else ""
        remark(f"wrote {settings.out}{doubtful}")
    return 1 if any(check.verdict is CheckVerdict.DIFFERS for check in checks) else 0
