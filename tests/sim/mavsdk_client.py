"""Fly a simulator with the unmodified MAVSDK-Python package: `python mavsdk_client.py PORT` prints what it saw as JSON."""

import asyncio
import json
import sys

from mavsdk.asyncio import ComponentType, Configuration, Mavsdk
from mavsdk.asyncio.plugins.action import ActionAsync
from mavsdk.asyncio.plugins.offboard import Attitude, OffboardAsync, PositionNedYaw
from mavsdk.asyncio.plugins.telemetry import TelemetryAsync


async def wait(telemetry: TelemetryAsync, seconds: float) -> None:
    """By the simulator's clock, which falls behind on a busy machine."""
    begin_us = None
    async for imu in telemetry.subscribe_imu():
        begin_us = imu.timestamp_us if begin_us is None else begin_us
        if imu.timestamp_us - begin_us > seconds * 1e6:
            return


async def fly(port: str) -> dict:
    """Attitude set-points first, then a position."""
    seen = {}
    async with Mavsdk(Configuration.create_with_component_type(ComponentType.GROUND_STATION)) as mavsdk:
        await mavsdk.add_any_connection(f"udpin://127.0.0.1:{port}")
        system = await mavsdk.first_autopilot(timeout_s=20)
        telemetry, action, offboard = TelemetryAsync(system), ActionAsync(system), OffboardAsync(system)
        async for attitude in telemetry.subscribe_attitude_euler():
            seen["pad_pitch_deg"] = attitude.pitch_deg
            break
        async for imu in telemetry.subscribe_imu():
            seen["pad_accel"] = [getattr(imu.acceleration_frd, f"{name}_m_s2") for name in ("forward", "right", "down")]
            break
        async for health in telemetry.subscribe_health():
            if health.is_armable:
                break
        await action.arm()
        await offboard.set_attitude(Attitude(0.0, 0.0, 180.0, 0.4))
        await offboard.start()
        async for armed in telemetry.subscribe_armed():
            if armed:
                break
        await wait(telemetry, 0.5)
        seen["flight_pitch_deg"] = (await telemetry.attitude_euler()).pitch_deg
        await offboard.set_position_ned(PositionNedYaw(0.0, 0.0, -3.0, 180.0))
        await wait(telemetry, 2.0)
        seen["offboard"] = await offboard.is_active()
        await action.disarm()
    return seen


print(json.dumps(asyncio.run(fly(sys.argv[1]))))
