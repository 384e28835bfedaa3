"""The hop over the link, in real time: arms, flies the script, stops the motors whatever happened, and reads what it showed."""

from collections.abc import Sequence

import numpy as np
from pymavlink.dialects.v20 import common as dialect

from field.check import Check
from field.hop import LEGACY, RAD_S, Hop
from field.hop_checks import hop_checks
from field.hop_fit import findings
from field.motion import Order, rest_of
from field.tap import Heard, Tap, is_armed
from link.profile import Profile
from pilot.ending import as_ctrl_c
from vehicle.vehicle import Vehicle

ARM_LIMIT_S = 3.0
LONGEST_S = 45.0
STOPS = 5  # orders to stop, as UDP may lose one
STOP_S = 0.1


def fly_hop(
    tap: Tap, heard: Heard, profile: Profile, vehicle: Vehicle, so_far: Profile
) -> tuple[list[Check], Profile, str]:
    """Flies, compares with a profile, and adds to what was found so far.

    The text says why there was no hop, or why it ended early; it is empty if all went well.
    """
    rest = rest_of(heard)
    if not heard.go:
        return [], so_far, "no start of a race came: begin one, and probe before its countdown"
    if rest is None or not rest.still:
        return [], so_far, "it does not rest, or the accelerometer does not show gravity"
    if not heard.pictures and not heard["ATTITUDE"]:
        return [], so_far, "with neither pictures nor ATTITUDE nothing shows which way it turns"
    told = heard["ATTITUDE"]
    euler = np.mean([[m.roll, m.pitch, m.yaw] for _, m in told], axis=0) if told else None
    mask = RAD_S if profile.rates_rad_s_bit else LEGACY
    hop = Hop(rest, vehicle.camera, mask, profile.signs.gyro, euler)
    flown = Heard(0.0)
    try:
        with as_ctrl_c():
            _arm(tap, flown)
            _fly(tap, flown, hop)
    finally:
        _stop(tap, flown, mask)
    checks, found = hop_checks(findings(hop.series, rest, hop.notes, vehicle.camera), profile, vehicle, so_far)
    return checks, found, hop.notes.end


def _arm(tap: Tap, flown: Heard) -> None:
    """Asks until the heartbeat says armed. A simulator that never says so is flown all the same."""
    begin = tap.now()
    while (now := tap.now()) - begin < ARM_LIMIT_S:
        tap.keep_alive(now)
        tap.arm(now)
        tap.poll(flown)
        if flown["HEARTBEAT"] and is_armed(flown["HEARTBEAT"][-1][1]):
            return


def _fly(tap: Tap, flown: Heard, hop: Hop) -> None:
    begin = tap.now()
    while not hop.over and tap.now() - begin < LONGEST_S:
        messages, frames = tap.poll(flown, 0.01)
        for arrival, message in messages:
            hop.hear(arrival, message)
        for arrival, frame in frames[-1:]:
            hop.see(arrival, frame)
        now = tap.now()
        tap.keep_alive(now)
        order = hop.act(now)
        if order is not None:
            tap.send(_target(tap.target, order, now - hop.offset_s))


def _stop(tap: Tap, flown: Heard, mask: int) -> None:
    """Motors off, said more than once."""
    for _ in range(STOPS):
        tap.send(_target(tap.target, Order(mask, (0.0, 0.0, 0.0), 0.0), 0.0))
        tap.arm(tap.now(), False)
        tap.poll(flown, STOP_S)


def _target(target: Sequence[int], order: Order, stamp: float) -> object:
    system, component = target
    boot_ms = round(max(0.0, stamp) * 1e3) & 0xFFFFFFFF
    return dialect.MAVLink_set_attitude_target_message(
        boot_ms, system, component, order.mask, order.q, *order.rates, order.throttle
    )
