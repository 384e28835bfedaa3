"""PX4 rules: a layer over the simulator that refuses what PX4 refuses, with its results and status texts.

Set-points act in OFFBOARD only, which requires a stream of them and is left when it stops; arming waits for pre-arm checks;
disarming in flight has to be forced; fast streams have to be requested. PX4 user guide, "Offboard Mode", "Safety"; Commander
of PX4 1.14.
"""

from typing import Any

from pymavlink.dialects.v20 import common as dialect

from gate_racer.link import px4
from gate_racer.link.messages import ARM_COMMAND, MODE_COMMAND, Arm, Attitude, Imu, LocalPosition, Outgoing, StatusText
from gate_racer.link.server import COMMANDS, SETPOINTS, GroundStationServices
from gate_racer.sim.simulator import Simulator

HOLD = 4, 3  # AUTO.LOITER, the mode after boot
BOOT_S = 2.0  # s, time until the estimator has converged
DESCENT_M_S = 0.7  # MPC_LAND_SPEED
SLOWEST_S = 3600.0  # largest message interval accepted (chosen)
DEFAULT_HZ = {Imu: 50.0, Attitude: 50.0, LocalPosition: 30.0}  # default rates of the on-board link
STREAMS = {
    dialect.MAVLINK_MSG_ID_HIGHRES_IMU: Imu,
    dialect.MAVLINK_MSG_ID_ATTITUDE: Attitude,
    dialect.MAVLINK_MSG_ID_LOCAL_POSITION_NED: LocalPosition,
}
ACCEPTED, REJECTED = dialect.MAV_RESULT_ACCEPTED, dialect.MAV_RESULT_TEMPORARILY_REJECTED
DENIED, CRITICAL = dialect.MAV_RESULT_DENIED, dialect.MAV_SEVERITY_CRITICAL


class Px4Services(GroundStationServices):
    """Command and telemetry filter between the link and a simulator."""

    def __init__(self, simulator: Simulator):
        """Set up for a simulator whose profile has a section `offboard`."""
        super().__init__(simulator.profile.system)
        rules = simulator.profile.offboard
        assert rules is not None
        self._simulator, self._rules = simulator, rules
        self.mode = px4.custom_mode(*HOLD)
        self._since = self._last = -SLOWEST_S  # s, start and last time of the set-point stream
        self._every_s = {kind: 1 / hz for kind, hz in DEFAULT_HZ.items()}
        self._due = dict.fromkeys(DEFAULT_HZ, 0.0)
        self._news: list[StatusText] = []

    @property
    def offboard(self) -> bool:
        return self.mode == px4.custom_mode(*px4.OFFBOARD)

    def tick(self, telemetry: list[Outgoing]) -> list[Outgoing]:
        """Return the telemetry of the streams that are due; switch from OFFBOARD to landing when set-points stop."""
        t = self._simulator.t
        if self.offboard and t - self._last > self._rules.loss_s:
            if self._simulator.armed:
                self._say("Failsafe activated: no offboard control signal")
            self._enter(px4.LAND)
        if self._simulator.armed and self.mode == px4.custom_mode(*px4.LAND) and self._simulator.landed:
            self._simulator.command(Arm(False))
        return [*filter(self._passes, telemetry), *self._texts()]

    def answers(self, message: Any) -> list[Any] | None:
        """Return the replies as `GroundStationServices`; set-points that are not followed are consumed."""
        if isinstance(message, SETPOINTS):
            return None if self._follows() else []
        if isinstance(message, dialect.MAVLink_set_mode_message):
            self._change_mode(message.base_mode, message.custom_mode >> 16 & 0xFF, message.custom_mode >> 24)
            return self._packets()
        if not isinstance(message, COMMANDS):
            return super().answers(message)
        if message.command == MODE_COMMAND:
            result = self._change_mode(message.param1, message.param2, message.param3)
        elif message.command == ARM_COMMAND:
            if self._may_arm() if message.param1 == 1.0 else self._may_disarm(message.param2):
                return None
            result = REJECTED
        elif message.command == px4.SET_MESSAGE_INTERVAL:
            result = self._set_interval(message.param1, message.param2)
        else:
            return super().answers(message)
        return [*self._packets(), dialect.MAVLink_command_ack_message(message.command, result)]

    def _passes(self, message: Outgoing) -> bool:
        kind, t = type(message), self._simulator.t
        every = self._every_s.get(kind, 0.0)
        if every < 0 or t < self._due.get(kind, t) - 1e-6:
            return False
        self._due[kind] = max(self._due.get(kind, t) + every, t)
        return True

    def _follows(self) -> bool:
        """Register a set-point for the stream, and return whether it is followed."""
        t, last = self._simulator.t, self._last
        self._since, self._last = t if t - last > self._rules.loss_s else self._since, t
        return self.offboard and self._simulator.armed

    def _change_mode(self, base: float, main: float, sub: float) -> int:
        known = main in px4.MAIN_MODES and (main != px4.LAND[0] or sub in px4.AUTO_MODES)
        if not 0 <= base <= 0xFF or not int(base) & px4.CUSTOM or not known or not 0 <= sub <= 0xFF:
            return DENIED
        t = self._simulator.t
        streamed = t - self._last <= self._rules.loss_s and t - self._since >= self._rules.stream_s
        if (main, sub) == px4.OFFBOARD and not streamed:
            self._say("Switching to mode 'Offboard' is currently not possible")
            return REJECTED
        self._enter((int(main), int(sub)))
        return ACCEPTED

    def _enter(self, mode: tuple[int, int]) -> None:
        """Change the mode; outside OFFBOARD a flying vehicle holds its position, or descends to land."""
        self.mode = px4.custom_mode(*mode)
        if self._simulator.armed and not self._simulator.landed and mode != px4.OFFBOARD:
            self._simulator.halt(DESCENT_M_S if mode == px4.LAND else 0.0)

    def _may_arm(self) -> bool:
        if self._simulator.t >= BOOT_S:
            return True
        self._say("Preflight Fail: ekf2 missing data")
        self._say("Arming denied: Resolve system health failures first")
        return False

    def _may_disarm(self, force: float) -> bool:
        if force == px4.FORCE or self._simulator.landed or not self._simulator.armed:
            return True
        self._say("Disarming denied: not landed")
        return False

    def _set_interval(self, message: float, interval_us: float) -> int:
        kind = STREAMS.get(message)
        if kind is None or not -1 <= interval_us <= SLOWEST_S * 1e6:
            return DENIED
        self._every_s[kind] = 1 / DEFAULT_HZ[kind] if interval_us == 0 else interval_us * 1e-6
        self._due[kind] = self._simulator.t
        return ACCEPTED

    def _say(self, text: str) -> None:
        self._news.append(StatusText(self._simulator.t, CRITICAL, text))

    def _texts(self) -> list[StatusText]:  # since the last call
        news, self._news = self._news, []
        return news

    def _packets(self) -> list[Any]:
        return [packet for text in self._texts() for packet in px4.text_packets(text.text, text.severity)]
