"""A preflight's file of the aircraft as its profile has it."""

from link.msp.constants import AircraftConstants
from link.msp.messages import Code
from link.msp.preflight import AtRest, LineFigures, PreflightFile, profile_named, vehicle_named
from link.msp.profile import load_betaflight
from sim.betaflight.settings import settings
from vehicle.vehicle import load_vehicle

LEVEL = AtRest((0.0, 0.0, -9.81), (0.0, 0.0, 0.0), 0.5, 0.02, 0.0, 0.0)


def made() -> PreflightFile:
    profile = load_betaflight("betaflight")
    told = settings(profile)
    constants = AircraftConstants(
        firmware="BTFL 4.4.3",
        api="1.45",
        board="STM32H743",
        pid_profile=0,
        rate_profile=0,
        channel_map=told[Code.RX_MAP].letters,
        tuning=told[Code.RC_TUNING],
        receiver=told[Code.RX_CONFIG],
        modes=told[Code.MODE_RANGES].ranges,
    )
    names = profile_named(profile), vehicle_named(load_vehicle("archer"))
    return PreflightFile(constants, *names, LEVEL, LineFigures(0.0165, 0.02, 0))
