"""The manoeuvres stay in the room that they are given, whatever the vehicle's file has wrong, and come to their end."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.link.messages import AttitudeTarget
from gate_racer.pilot.guidance.exciter import Excitation, Manoeuvres, parse_manoeuvres
from gate_racer.sim.physics.plant import RatesPlant
from gate_racer.tracks.track import Bounds, Start

PERIOD_S = 1 / 60
START = Start((0.0, 0.0, -0.9), 0.0)
ROOM, SMALL = Bounds((-12.0, -12.0, -10.9), (12.0, 12.0, 0.0)), Bounds((-8.0, -8.0, -9.0), (8.0, 8.0, 0.0))


def scaled(vehicle, factor):
    thrust = tuple(factor * c for c in vehicle.throttle.thrust_m_s2)
    return replace(vehicle, throttle=replace(vehicle.throttle, thrust_m_s2=thrust))


def places(believed, flown, wanted, start=START.p_wb, room=ROOM):
    """Return the positions (n, 3) m of all manoeuvres to their end, flown on the true state."""
    plant = RatesPlant(flown, START)
    plant.place(start, START.q_wb, np.zeros(3))
    excitation, p_w = Excitation(believed, START, room, wanted, 0, 1), []
    for k in range(int(60 / PERIOD_S)):
        command = excitation.step(k * PERIOD_S, plant.truth.x, PERIOD_S)
        if excitation.done:
            return np.array(p_w)
        throttle, (x, y, z) = believed.throttle.throttle(float(command.u[3])), command.u[:3].tolist()
        plant.command(k * PERIOD_S, AttitudeTarget((1.0, 0.0, 0.0, 0.0), (x, y, z), throttle, by_rates=True))
        plant.advance((k + 1) * PERIOD_S)
        p_w.append(plant.x[:3].copy())
    pytest.fail("the manoeuvres do not end")


WANTED = ("all", ROOM), ("0.15,0.265,0.4,0.6,0.8,1,1,roll,pitch,yaw,speed", ROOM), ("0.1,1", SMALL)


@pytest.mark.parametrize(("wanted", "room"), WANTED, ids=[wanted for wanted, _ in WANTED])
@pytest.mark.parametrize("strength", [0.86, 1.0, 1.14])
def test_it_stays_in_its_room_with_a_thrust_that_it_was_not_told(dcl, strength, wanted, room):
    p_w = places(dcl, scaled(dcl, strength), parse_manoeuvres(wanted), room=room)
    settled = p_w[int(2 / PERIOD_S) :]
    assert settled[:, 2].max() < -1.0, "it sinks to the ground"
    assert (p_w > room.low_m).all() and (p_w < room.high_m).all()


def test_it_comes_to_its_end_where_it_begins_far_aside(dcl):
    p_w = places(dcl, dcl, Manoeuvres(axes=(), speed=False), START.p_wb + [0.0, 14.0, -3.0])
    assert np.linalg.norm(p_w[-1, :2]) < 1.0


def test_manoeuvres_are_named_as_they_are_read():
    assert parse_manoeuvres("all") == Manoeuvres() == parse_manoeuvres(str(Manoeuvres()))
    for text in ("0.7,0.8,yaw,speed", "roll", "1"):
        assert str(parse_manoeuvres(text)) == text
    for text in ("loop", "1.5", "", "0.5,,yaw"):
        with pytest.raises(UserError, match="is not a manoeuvre; known: all, a throttle"):
            parse_manoeuvres(text)
