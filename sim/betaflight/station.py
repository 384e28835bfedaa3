"""Simulated aircraft: flight controller, safety pilot and plant on one clock, without ports or wall clock."""

import math
from dataclasses import replace

import numpy as np

from gate_racer.link.messages import Arm
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.sim.betaflight.flight_controller import FlightController
from gate_racer.sim.betaflight.pilot import SafetyPilot
from gate_racer.sim.betaflight.sensing import SimulatedSensing
from gate_racer.sim.betaflight.sitl import Sitl, SitlMotors
from gate_racer.sim.betaflight.sitl_controller import SitlController
from gate_racer.sim.physics.plant import UnmodelledAcceleration
from gate_racer.sim.physics.setting import Setting
from gate_racer.sim.sensors import Sensors
from gate_racer.sim.simulator import Exposure, Simulator
from gate_racer.sim.worlds.world import World

MOTION_HZ = 480.0  # of the physics: rates that are read are at most 2 ms old; a real rate loop's are fresh
SITL_HZ = 900.0  # of motion for the firmware, whose rate loop is as fast as a real one


class BetaflightStation:
    """Aircraft behind its serial line: `receive` receives the companion's bytes, `serve` runs the line, `tick` the physics."""

    def __init__(
        self,
        world: World,
        profile: BetaflightProfile,
        seed: int,
        laps: int = 1,
        setting: Setting | None = None,
        pilot: SafetyPilot | None = None,
        residual: UnmodelledAcceleration | None = None,
        sitl: Sitl | None = None,
    ):
        """Set up the aircraft; with `sitl` the firmware itself controls a plant of four rotors.

        Raises:
            UserError: the vehicle does not support the setting.
        """
        # The vehicle's delays are of all there is, and the filters of the flight controller are part of it.
        vehicle, wire = world.vehicle, profile.wire
        rest_s = max(0.0, vehicle.command_delay_s - profile.smoothing_delay_s)
        read_s = max(0.0, vehicle.imu.accel_delay_s - profile.accel_delay_s)
        imu = replace(vehicle.imu, accel_delay_s=read_s)
        world = replace(world, vehicle=replace(vehicle, command_delay_s=rest_s, imu=imu))
        least_hz = MOTION_HZ if sitl is None else SITL_HZ
        wire = replace(wire, physics_hz=math.ceil(least_hz / profile.stick_hz) * profile.stick_hz)
        sensors = Sensors(world.vehicle, np.random.default_rng([seed, 10]), world.deviations.imu)
        flown = seed, laps, False, setting, residual
        self.controller: FlightController | SitlController
        if sitl is not None:
            self.simulator = Simulator(world, wire, *flown, motors=SitlMotors(sitl, sensors, profile.accel_loss_m_s2))
            self.controller = SitlController(profile, sitl)
        else:
            self.simulator = Simulator(world, wire, *flown)
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
    def tick_t(self) -> float:
        """Time of the next physics step, s."""
        return (self.simulator.count + 1) / self.simulator.profile.physics_hz

    def receive(self, data: bytes, t: float) -> None:
        """Receive bytes that the companion sends at t, s."""
        self.controller.receive(data, t)

    def serve(self, t: float) -> bytes:
        """Run the line up to t, s, and return the bytes that have arrived at the companion."""
        self.controller.receiver.pilot = self.pilot.channels(self.controller, t)
        self.controller.serve(t)
        if self.controller.armed != self.simulator.armed:
            self.simulator.command(Arm(self.controller.armed))
        return self.controller.spoken(t)

    def tick(self) -> Exposure | None:
        """Advance one physics step and return its exposure, if any."""
        target = self.controller.fly(self.simulator.truth.q_wb, self.t)
        if target is not None:
            self.simulator.command(target)
        exposure = self.simulator.tick().exposure
        if self.controller.armed and not self.simulator.armed:
            self.controller.arming.disarm()  # what has crashed does not turn its motors
        return exposure

    def reset(self) -> None:
        """Return the vehicle to its pad for another run."""
        self.simulator.reset()
        self.controller.boot(self.t)
        self.pilot.step_back()
