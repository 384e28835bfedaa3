"""Simulated aircraft: flight controller, safety pilot and plant on one clock, without ports or sockets."""

import math
from dataclasses import replace

import numpy as np

from gate_racer.link.messages import Arm
from gate_racer.link.msp.messages import DisableFlag
from gate_racer.link.msp.profile import LOW_US, MID_US, STICKS, AuxRange, BetaflightProfile
from gate_racer.sim.betaflight.flight_controller import CHANNELS, FlightController, SimulatedSensing
from gate_racer.sim.betaflight.sitl import Sitl, SitlController, SitlMotors
from gate_racer.sim.simulator import USUAL, Exposure, RunSetup, Sensors, Simulator
from gate_racer.sim.worlds.world import World

STREAM_S = 1.0  # of sticks that are to be seen before arming
HANDOVER_S = 1.0  # from arming on
ENDED_S = 2.0  # without sticks, before any flight: taken back
TAKEN_BACK_S = 1.0  # from then to disarming
LANDED_S = 2.0  # of a low throttle after a flight, before disarming


def switched(profile: BetaflightProfile, *modes: AuxRange) -> list[float]:
    """Return channels in us with sticks centred, throttle low, and these modes on."""
    us = [float(MID_US)] * STICKS + [float(LOW_US)] * (CHANNELS - STICKS)
    us[profile.channel("T")] = float(LOW_US)
    for mode in modes:
        us[STICKS + mode.channel - 1] = (mode.low_us + mode.high_us) / 2
    return us


class SafetyPilot:
    """Safety pilot at the transmitter: arms once the companion sends sticks, hands over control, and disarms at the end.

    Call `channels` at every cycle. Times in s.
    """

    def __init__(self, profile: BetaflightProfile, patience_s: float = math.inf):
        """Set up the pilot. `patience_s`: time limit for take-off after the handover."""
        self._profile, self._patience_s = profile, patience_s
        self.reset()

    def reset(self) -> None:
        """Turn all switches off, for another run."""
        self._armed_t: float | None = None
        self._taken_back_t: float | None = None
        self._done = self._flown = False
        self._thrust_t = 0.0  # when the throttle was up last

    def channels(self, controller: FlightController | SitlController, t: float) -> list[float]:
        """Return the transmitter's channels at t, us. After the end of a flight the pilot does not arm again."""
        aux, receiver = self._profile.aux, controller.receiver
        ended = t - receiver.companion_last_t > ENDED_S
        if self._armed_t is None:
            first = receiver.companion_t
            streamed = first is not None and t - first >= STREAM_S and not ended
            if not streamed or controller.arming.disabled != DisableFlag(0):
                return switched(self._profile)
            self._armed_t = t
        if receiver.channels[self._profile.channel("T")] >= self._profile.throttle.min_check_us:
            self._flown, self._thrust_t = True, t
        handed_s = t - self._armed_t - HANDOVER_S
        if self._taken_back_t is None and not self._flown and (ended or handed_s > self._patience_s):
            self._taken_back_t = t
        self._done |= handed_s > 0 and not controller.armed
        self._done |= self._flown and t - self._thrust_t > LANDED_S
        self._done |= self._taken_back_t is not None and t - self._taken_back_t > TAKEN_BACK_S
        if self._done:
            return switched(self._profile)
        over = [aux.override] if handed_s >= 0 and self._taken_back_t is None else []
        return switched(self._profile, aux.arm, *over)


MOTION_HZ = 480.0  # of the physics: rates that are read are at most 2 ms old; a real rate loop's are fresh
SITL_HZ = 900.0  # of motion for the firmware, whose rate loop is as fast as a real one


class BetaflightStation:
    """Aircraft behind its serial line: `receive` receives the companion's bytes, `serve` runs the line, `tick` the physics."""

    def __init__(
        self,
        world: World,
        profile: BetaflightProfile,
        seed: int,
        setup: RunSetup = USUAL,
        pilot: SafetyPilot | None = None,
        sitl: Sitl | None = None,
    ):
        """Set up the aircraft, with `sitl` four rotors that the firmware itself controls. Raises UserError as `Simulator`."""
        # The vehicle's delays are of all there is, and the filters of the flight controller are part of it.
        vehicle = world.vehicle
        rest_s = max(0.0, vehicle.command_delay_s - profile.smoothing_delay_s)
        imu = replace(vehicle.imu, accel_delay_s=max(0.0, vehicle.imu.accel_delay_s - profile.accel_delay_s))
        world = replace(world, vehicle=replace(vehicle, command_delay_s=rest_s, imu=imu))
        least_hz = MOTION_HZ if sitl is None else SITL_HZ
        wire = replace(profile.wire, physics_hz=math.ceil(least_hz / profile.stick_hz) * profile.stick_hz)
        lpf_hz = profile.accel_lpf_hz if sitl is None else None  # which the firmware has of its own
        sensors = Sensors(world.vehicle, np.random.default_rng([seed, 10]), world.deviations.imu, lpf_hz)
        self.controller: FlightController | SitlController
        if sitl is not None:
            motors = SitlMotors(sitl, sensors, profile.accel_loss_m_s2)
            self.simulator = Simulator(world, wire, seed, setup, motors=motors)
            self.controller = SitlController(profile, sitl)
        else:
            self.simulator = Simulator(world, wire, seed, setup)
            sensing = SimulatedSensing(profile, self.simulator, sensors, np.random.default_rng([seed, 11]))
            self.controller = FlightController(profile, sensing)
        self.pilot = pilot if pilot is not None else SafetyPilot(profile)

    @property
    def t(self) -> float:
        return self.simulator.t

    @property
    def next_t(self) -> float:
        """Time of the next event on the line or in the physics, s."""
        return min(self.controller.next_t, self.tick_t)

    @property
    def tick_t(self) -> float:  # s, of the next physics step
        return (self.simulator.count + 1) / self.simulator.profile.physics_hz

    def receive(self, data: bytes, t: float) -> None:
        self.controller.receive(data, t)

    def serve(self, t: float) -> bytes:
        """Run the line up to t, s, and return the bytes that have arrived at the companion."""
        self.controller.receiver.pilot = self.pilot.channels(self.controller, t)
        self.controller.serve(t)
        if self.controller.armed != self.simulator.armed:
            self.simulator.command(Arm(self.controller.armed))
        return self.controller.transmitted(t)

    def tick(self) -> Exposure | None:
        target = self.controller.fly(self.simulator.truth.q_wb, self.t)
        if target is not None:
            self.simulator.command(target)
        exposure = self.simulator.tick().exposure
        if self.controller.armed and not self.simulator.armed:
            self.controller.arming.disarm()  # what has crashed does not turn its motors
        return exposure

    def reset(self) -> None:
        self.simulator.reset()
        self.controller.boot(self.t)
        self.pilot.reset()


class StationPort:
    """`link.msp.ports.Port` of a station in the same process: waiting advances the simulator's clock."""

    def __init__(self, station: BetaflightStation):
        self._station, self.t = station, station.t
        self._exposures: list[Exposure] = []

    def clock(self) -> float:
        return self.t

    def read(self, timeout_s: float) -> bytes:
        end = self.t + timeout_s
        while self.t < end:
            self.t = min(end, max(self.t, self._station.next_t))
            said = self._station.serve(self.t)
            while self._station.tick_t <= self.t:
                exposure = self._station.tick()
                self._exposures += [exposure] if exposure is not None else []
            if said:
                return said
        return b""

    def exposures(self) -> list[Exposure]:  # since the last call
        taken, self._exposures = self._exposures, []
        return taken

    def write(self, data: bytes) -> None:
        self._station.receive(data, self.t)

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        """Do nothing."""
