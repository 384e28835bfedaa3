"""Command line of `race-sim`."""

import argparse
from dataclasses import dataclass, field
from pathlib import Path

from gate_racer.common.command import settings_parser
from gate_racer.common.errors import UserError
from gate_racer.common.settings import key, require_usual
from gate_racer.link.options import TERMINAL
from gate_racer.race.settings import PLANT, WorldSettings
from gate_racer.tracks.track import MOST, SPACING_M

WORK = "gate_racer.race.serving"
VADR = "vadr"  # protocol of images, by VADR-TS-002
OPTIONS = {
    "race": {"--vehicle": "vehicle", "--pilots": "rivals.pilots", "--world": "world.file", "--seed": "world.seed"},
    "link": {"--profile": "link.profile", "--lockstep": "link.lockstep"},
}
BETAFLIGHT = "needs --profile betaflight"


@dataclass(frozen=True)
class ServedLinkSettings:
    profile: str = key("spec", "wire profile: name or YAML file", "NAME")
    lockstep: bool = key(
        False, "advance only with the client, which answers each IMU sample by a set-point or SYSTEM_TIME"
    )
    realtime: float = key(1.0, "ratio of simulated to wall time", least=0.01, most=100)
    bind: str = key("", "HOST:PORT of the simulator's MAVLink port, else 127.0.0.1:14560")
    client: str = key("", "HOST:PORT that telemetry is sent to, else 127.0.0.1:14550")
    video: str = key("", "HOST:PORT that images are sent to, else port 5600 of the client")
    vision_protocol: str = key(
        VADR,
        f"{VADR}: images to the client; rflysim or `rflysim://HOST:PORT[?imu=PORT&masks=sdk306]`: sensors requested there",
    )
    signing_key: Path | None = key(None, "sign MAVLink with the passphrase in this file, and require signed messages")
    pose: bool = key(False, "send the true pose as LOCAL_POSITION_NED and ODOMETRY")
    msp: str = key(TERMINAL, f"serial line, pty (a pseudo-terminal) or `tcp:HOST:PORT`; {BETAFLIGHT}")
    sitl: Path | None = key(None, f"Betaflight's SITL program as the flight controller; {BETAFLIGHT}")
    take_back_s: float | None = key(
        None, f"the safety pilot takes back if no flight begins within so many s; {BETAFLIGHT}", positive=True
    )


@dataclass(frozen=True)
class MultiVehicleSettings:
    pilots: int = key(
        1,
        "number of vehicles in the race; each has its own ports, counted up from the first's",
        "N",
        least=1,
        most=MOST,
    )
    spacing_m: float = key(SPACING_M, "distance between neighbours at the start, m")
    rotor_radius_m: float = key(
        0.0, "radius of each rotor, m, for its downwash on the others; 0 for none", least=0, most=1
    )
    publish_states: bool = key(False, "send each pilot the states of the others, see docs/racing.md")


@dataclass(frozen=True)
class ShotSettings:
    file: Path | None = key(None, "render one image to this file (PNG) and exit")
    pose: str = key("", "X,Y,Z,ROLL,PITCH,YAW of the body, m and degrees, else the start")


@dataclass(frozen=True)
class SimulatorSettings:
    vehicle: str = key("dcl", "name or YAML file", "NAME")
    laps: int = key(1, "number of laps of a closed track")
    plant: str = key("", f"{PLANT}; else the most detailed that the vehicle has")
    residual: Path | None = key(None, "add the residual acceleration learned by race-bench fit-residuals")
    strict: bool = key(False, "disqualify for a violation of the interface (docs/vadr.md), besides reporting it")
    once: bool = key(False, "end after the first run")
    record: Path | None = key(None, "log of truth, commands and every message (MCAP)", "FILE")
    rivals: MultiVehicleSettings = field(default_factory=MultiVehicleSettings)
    link: ServedLinkSettings = field(default_factory=ServedLinkSettings)
    shot: ShotSettings = field(default_factory=ShotSettings)
    world: WorldSettings = field(default_factory=WorldSettings)

    def require_consistent(self) -> None:
        """Check that the settings do not contradict each other. Raises UserError where they do."""
        link, rivals = self.link, self.rivals
        if self.shot.file is None:
            require_usual(self.shot, ["pose"], "needs shot.file", "shot.")
        self.world.require_vio()
        if self.world.vio and link.pose:
            raise UserError("world.vio: cannot be combined with link.pose, which sends the true state as ODOMETRY")
        if link.lockstep and link.realtime != 1.0:
            raise UserError("--lockstep and link.realtime exclude each other: in lock-step the client sets the pace")
        if rivals.pilots == 1 and rivals != MultiVehicleSettings():
            raise UserError("rivals: needs --pilots 2 or more")
        if rivals.pilots > 1:
            unfit = f"cannot be used with --pilots {rivals.pilots}"
            require_usual(link, ("vision_protocol", "msp"), unfit, "link.")
            require_usual(self, ["record"], unfit)


def parser() -> argparse.ArgumentParser:
    about = "Simulator with the interface VADR-TS-002 over UDP."
    result = "verdict and true path of the last run"
    arguments = settings_parser("race-sim", about, SimulatorSettings(), OPTIONS, result, "--report")
    arguments.add_argument("track", nargs="?", default="vq1", help="name or YAML file (default: vq1)")
    return arguments
