"""The probe flight over the link, in real time: arm, fly the script, stop the motors in any case, evaluate."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pymavlink.dialects.v20 import common as dialect

from gate_racer.field.probe.check import Check
from gate_racer.field.probe.flight_checks import flight_checks
from gate_racer.field.probe.flight_fit import findings
from gate_racer.field.probe.flight_script import LEGACY, RAD_S, ProbeFlight
from gate_racer.field.probe.motion import Order, rest_of
from gate_racer.field.probe.raw_link import RawLink, ReceivedMessages, is_armed
from gate_racer.link.profile import Profile
from gate_racer.pilot.drivers.ending import as_ctrl_c
from gate_racer.vehicle.vehicle import Vehicle

ARM_LIMIT_S = 3.0  # s, longest wait for arming (chosen)
LONGEST_S = 45.0  # s, longest probe flight (chosen)
STOPS = 5  # repetitions of the stop command, as UDP may lose datagrams
STOP_S = 0.1  # s between them


def fly_probe(
    link: RawLink, received: ReceivedMessages, profile: Profile, vehicle: Vehicle, so_far: Profile
) -> tuple[list[Check], Profile, str]:
    """Fly, compare with a profile, and extend the profile found so far.

    The text says why there was no flight, or why it ended early; empty if all went well.
    """
    rest = rest_of(received)
    if not received.go:
        return [], so_far, "no race was started; start the probe before the countdown of a race"
    if rest is None or not rest.still:
        return [], so_far, "the vehicle is not at rest, or the accelerometer does not show gravity"
    if not received.images and not received["ATTITUDE"]:
        return [], so_far, "neither images nor ATTITUDE was received, so the signs of rotation cannot be determined"
    attitudes = received["ATTITUDE"]
    euler = np.mean([[m.roll, m.pitch, m.yaw] for _, m in attitudes], axis=0) if attitudes else None
    mask = RAD_S if profile.rates_rad_s_bit else LEGACY
    flight = ProbeFlight(rest, vehicle.camera, mask, profile.signs.gyro, euler)
    flown = ReceivedMessages(0.0)
    try:
        with as_ctrl_c():
            _arm(link, flown)
            _fly(link, flown, flight)
    finally:
        _stop(link, flown, mask)
    measured = findings(flight.series, rest, flight.notes, vehicle.camera)
    if not link.times_images:
        measured = replace(measured, video_shift_s=None)
    checks, found = flight_checks(measured, profile, vehicle, so_far)
    return checks, found, flight.notes.end


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
    """Stop the motors, with repetitions."""
    for _ in range(STOPS):
        link.send(_target(link.target, Order(mask, (0.0, 0.0, 0.0), 0.0), 0.0))
        link.arm(link.now(), False)
        link.poll(flown, STOP_S)


def _target(target: Sequence[int], order: Order, stamp: float) -> object:
    system, component = target
    boot_ms = round(max(0.0, stamp) * 1e3) & 0xFFFFFFFF
    return dialect.MAVLink_set_attitude_target_message(
        boot_ms, system, component, order.mask, order.q, *order.rates, order.throttle
    )
