"""Minimal services that MAVSDK, MAVProxy and QGroundControl require of an autopilot before flight: a mode that can be set, a
version, a parameter, the state of health and a home position. MAVLink's command, parameter and mode services.

The vehicle follows set-points in every mode; the mode is only stored and reported.
"""

from typing import Any

from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.messages import GroundStatus

PARAMETER = "SYSID_THISMAV"  # the only one, so that a download of all parameters ends
SET_MODE, REQUEST_MESSAGE = dialect.MAV_CMD_DO_SET_MODE, dialect.MAV_CMD_REQUEST_MESSAGE
REQUEST_VERSION = dialect.MAV_CMD_REQUEST_AUTOPILOT_CAPABILITIES
CAPABILITIES = (
    dialect.MAV_PROTOCOL_CAPABILITY_MAVLINK2
    | dialect.MAV_PROTOCOL_CAPABILITY_SET_ATTITUDE_TARGET
    | dialect.MAV_PROTOCOL_CAPABILITY_SET_POSITION_TARGET_LOCAL_NED
)
SENSORS = (
    dialect.MAV_SYS_STATUS_SENSOR_3D_GYRO
    | dialect.MAV_SYS_STATUS_SENSOR_3D_ACCEL
    | dialect.MAV_SYS_STATUS_SENSOR_ANGULAR_RATE_CONTROL
    | dialect.MAV_SYS_STATUS_SENSOR_ATTITUDE_STABILIZATION
    | dialect.MAV_SYS_STATUS_PREARM_CHECK
)
NO_BATTERY = 0xFFFF, -1, -1  # mV, cA, %: not measured
PARAMETER_INDEX_BY_NAME = -1  # param_index of a request by name (MAVLink PARAM_REQUEST_READ)


class GroundStationServices:
    """Ground-station services of one autopilot."""

    def __init__(self, system: int):
        self._system = system
        self._home: tuple[float, float, float] | None = None
        self.mode = 0  # HEARTBEAT.custom_mode, in PX4's form: main mode << 16 | sub-mode << 24

    def status(self, status: GroundStatus) -> list[Any]:
        """Return SYS_STATUS, EXTENDED_SYS_STATE and HOME_POSITION."""
        self._home = status.home_w
        landed = dialect.MAV_LANDED_STATE_ON_GROUND if status.landed else dialect.MAV_LANDED_STATE_IN_AIR
        return [
            dialect.MAVLink_sys_status_message(SENSORS, SENSORS, SENSORS, 0, *NO_BATTERY, 0, 0, 0, 0, 0, 0),
            dialect.MAVLink_extended_sys_state_message(dialect.MAV_VTOL_STATE_UNDEFINED, landed),
            self._home_position(),
        ]

    def answers(self, message: Any) -> list[Any] | None:
        """Return the packets that answer a packet; None if it is not one of these services."""
        match message:
            case dialect.MAVLink_command_long_message() if message.command == SET_MODE:
                if not all(0 <= number <= 0xFF for number in (message.param2, message.param3)):  # False for NaN too
                    return [_ack(SET_MODE, dialect.MAV_RESULT_DENIED)]
                self.mode = int(message.param2) << 16 | int(message.param3) << 24
                return [_ack(SET_MODE, dialect.MAV_RESULT_ACCEPTED)]
            case dialect.MAVLink_set_mode_message():
                self.mode = message.custom_mode
                return []
            case dialect.MAVLink_command_long_message() if message.command == REQUEST_MESSAGE:
                return self._requested(message.param1)
            case dialect.MAVLink_command_long_message() if message.command == REQUEST_VERSION:
                return [_ack(REQUEST_VERSION, dialect.MAV_RESULT_ACCEPTED), self._version()]
            case dialect.MAVLink_param_request_list_message():
                return [self._parameter()]
            case dialect.MAVLink_param_request_read_message() | dialect.MAVLink_param_set_message():
                index = getattr(message, "param_index", PARAMETER_INDEX_BY_NAME)
                known = message.param_id == PARAMETER if index == PARAMETER_INDEX_BY_NAME else index == 0
                return [self._parameter()] if known else []
        return None

    def _requested(self, number: float) -> list[Any]:
        makers = {dialect.MAVLINK_MSG_ID_AUTOPILOT_VERSION: self._version}
        if self._home is not None:
            makers[dialect.MAVLINK_MSG_ID_HOME_POSITION] = self._home_position
        make = makers.get(number)
        if make is None:
            return [_ack(REQUEST_MESSAGE, dialect.MAV_RESULT_UNSUPPORTED)]
        return [_ack(REQUEST_MESSAGE, dialect.MAV_RESULT_ACCEPTED), make()]

    def _version(self) -> Any:
        nowhere = [0] * 8
        return dialect.MAVLink_autopilot_version_message(CAPABILITIES, 0, 0, 0, 0, nowhere, nowhere, nowhere, 0, 0, 1)

    def _home_position(self) -> Any:
        """Return the position of the pad; the world has no geodetic reference (VADR-TS-002, 3.3)."""
        assert self._home is not None
        return dialect.MAVLink_home_position_message(0, 0, 0, *self._home, (1.0, 0.0, 0.0, 0.0), 0.0, 0.0, 0.0)

    def _parameter(self) -> Any:
        kind = dialect.MAV_PARAM_TYPE_REAL32
        return dialect.MAVLink_param_value_message(PARAMETER.encode(), float(self._system), kind, 1, 0)


def _ack(command: int, result: int) -> Any:
    return dialect.MAVLink_command_ack_message(command, result)
