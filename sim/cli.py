"""Command line of the simulator, `race-sim`."""

import argparse
import math
import sys
from pathlib import Path

from gate_racer.link.msp.profile import BetaflightProfile, load_wire
from gate_racer.sim.betaflight.command import race_betaflight
from gate_racer.sim.betaflight.server import TERMINAL
from gate_racer.sim.heat.command import add_heat_arguments, race_heat, require_heat
from gate_racer.sim.physics.residual import ResidualAcceleration, Residuals
from gate_racer.sim.physics.setting import SETTINGS, natural
from gate_racer.sim.referee import Referee
from gate_racer.sim.report import report, write_report
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.view.look import load_look
from gate_racer.sim.view.shot import shoot
from gate_racer.sim.wire.command import VADR, race_mavlink
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import NOMINAL
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.command import add_common, perform, remark
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.files import require_output
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

STATUS_HZ = 5  # Hz, rate of the status line, simulator clock (chosen)
BY_MSP = {"take_back": math.inf, "sitl": None, "msp": TERMINAL}  # defaults of the options for MSP profiles


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser of `race-sim`."""
    arguments = argparse.ArgumentParser(
        prog="race-sim", description="Simulator with the interface VADR-TS-002 over UDP."
    )
    arguments.add_argument("--track", default="vq1", help="name or YAML file (default: vq1)")
    arguments.add_argument("--vehicle", default="dcl", help="name or YAML file (default: dcl)")
    arguments.add_argument("--profile", default="spec", help="wire profile (default: spec)")
    arguments.add_argument(
        "--look", default="race", help="appearance of the rendered world: name or YAML file (default: race)"
    )
    arguments.add_argument("--laps", type=int, default=1, help="number of laps of a closed track (default: 1)")
    arguments.add_argument(
        "--setting",
        type=int,
        choices=sorted(SETTINGS),
        help="plant: 1, 2 the controller's model, 3, 4 the grey-box model (default: the most detailed that the vehicle has)",
    )
    arguments.add_argument(
        "--world",
        default=NOMINAL,
        metavar="FILE[:SEED]",
        help="deviations of the simulated world from track and vehicle, see docs/worlds.md (default: as_believed)",
    )
    arguments.add_argument(
        "--residual",
        type=Path,
        metavar="FILE",
        help="add the residual acceleration learned by race-bench fit-residuals",
    )
    arguments.add_argument("--seed", type=int, default=0, help="random seed of sensor noise and scenery (default: 0)")
    arguments.add_argument("--realtime", type=float, default=1.0, help="ratio of simulated to wall time (default: 1.0)")
    _add_wire(arguments)
    add_heat_arguments(arguments)
    arguments.add_argument("--once", action="store_true", help="end after the first run")
    add_common(arguments, "verdict and true path of the last run", "--report")
    arguments.add_argument("--shot", type=Path, metavar="FILE.png", help="render one image and exit")
    arguments.add_argument(
        "--pose-at",
        default="",
        metavar="X,Y,Z,ROLL,PITCH,YAW",
        help="with --shot: pose of the body, m and degrees; write --pose-at=-3,0,... (default: the start)",
    )
    return arguments


def _add_wire(arguments: argparse.ArgumentParser) -> None:
    """Add the options of the link: addresses, protocols, and what they carry."""
    arguments.add_argument(
        "--bind",
        default="",
        metavar="HOST:PORT",
        help="address of the simulator's MAVLink port (default: 127.0.0.1:14560)",
    )
    arguments.add_argument(
        "--client", default="", metavar="HOST:PORT", help="destination of telemetry (default: 127.0.0.1:14550)"
    )
    arguments.add_argument(
        "--video", default="", metavar="HOST:PORT", help="destination of images (default: port 5600 of the client)"
    )
    arguments.add_argument(
        "--vision-protocol",
        default=VADR,
        metavar="NAME",
        help="vadr: images to --video; rflysim or rflysim://HOST:PORT[?imu=PORT]: sensors requested there (default: vadr)",
    )
    arguments.add_argument(
        "--msp",
        default=TERMINAL,
        metavar="WHERE",
        help="with --profile betaflight: serial line, pty (a pseudo-terminal) or tcp:HOST:PORT (default: pty)",
    )
    arguments.add_argument(
        "--sitl",
        type=Path,
        metavar="PROGRAM",
        help="with --profile betaflight: use Betaflight's SITL program as the flight controller, see docs/betaflight.md",
    )
    arguments.add_argument(
        "--take-back",
        type=float,
        default=math.inf,
        metavar="S",
        help="with --profile betaflight: the safety pilot takes back if no flight begins within S s (default: never)",
    )
    arguments.add_argument(
        "--signing-key",
        type=Path,
        metavar="FILE",
        help="sign MAVLink with the passphrase in a file, and require signed messages",
    )
    arguments.add_argument("--pose", action="store_true", help="send the true pose as LOCAL_POSITION_NED and ODOMETRY")
    arguments.add_argument(
        "--lockstep",
        action="store_true",
        help="advance only with the client: it answers each IMU sample by a set-point or SYSTEM_TIME",
    )
    arguments.add_argument(
        "--strict",
        action="store_true",
        help="disqualify for a violation of the interface (docs/vadr.md) instead of reporting it only",
    )
    arguments.add_argument("--record", type=Path, help="log of truth, commands and every message (MCAP)")


class Narrator:
    """Terminal output: a status line during a run, and one line per finished run."""

    def __init__(self, file: Path | None):
        self._file, self._ticks, self._reported = file, 0, False
        self._objected: set[str] = set()  # rules reported in this run

    def __call__(self, simulator: Simulator, lag: float) -> None:
        self._ticks += 1
        race = simulator.referee.race
        self._object(simulator.referee)
        if not race.over:
            self._reported = False
        elif not self._reported:
            self._reported = True
            self._finish(simulator)
        if sys.stderr.isatty() and self._ticks % round(simulator.profile.physics_hz / STATUS_HZ) == 0:
            passed, total = len(race.gate_times_s), len(simulator.referee.course)
            speed = float(sum(v * v for v in simulator.truth.x[7:10])) ** 0.5
            line = f"{simulator.t:8.1f} s  {race.status.value:9s} gate {passed}/{total}  {speed:5.1f} m/s"
            line += f"  lag {lag * 1e3:4.1f} ms"
            print(f"\r{line}", end="", file=sys.stderr, flush=True)

    def _object(self, referee: Referee) -> None:
        """Print one line for each rule of the interface at its first violation in a run."""
        self._objected &= referee.violations.keys()
        for rule in referee.violations.keys() - self._objected:
            violation = referee.violations[rule]
            self._objected.add(rule)
            remark(f"VADR-TS-002 at {violation.t:.2f} s: {violation}")

    def _finish(self, simulator: Simulator) -> None:
        race = simulator.referee.race
        end = "\n" if sys.stderr.isatty() else ""
        elapsed_s = simulator.referee.elapsed_s
        last = f"{elapsed_s:.3f} s" if elapsed_s is not None else "-"
        margin = f"{min(race.gate_margins_m):.3f} m" if race.gate_margins_m else "-"
        passed = f"{len(race.gate_times_s)}/{len(simulator.referee.course)} gates"
        cause = f" ({race.cause})" if race.cause else ""
        print(f"{end}{race.status.value}{cause}: {passed}, last at {last}, least margin {margin}", flush=True)
        for violation in simulator.referee.violations.values():
            print(f"  {violation.count} x {violation}, first at {violation.t:.2f} s", flush=True)
        if self._file is not None:
            write_report(self._file, report(simulator))


def residual_of(arguments: argparse.Namespace, vehicle: Vehicle) -> ResidualAcceleration | None:
    """Return the residual of --residual. Raises UserError for a file of another vehicle or plant, or without acceleration."""
    if arguments.residual is None:
        return None
    residuals = Residuals.load(arguments.residual)
    setting = SETTINGS.get(arguments.setting) or natural(vehicle)
    residuals.require(vehicle, setting, str(arguments.residual))
    if residuals.acceleration is None:
        raise UserError(f"--residual {arguments.residual}: contains odometry errors only; race-bench flies with these")
    return residuals.acceleration


def run(arguments: argparse.Namespace) -> int:
    """Run the simulator as the command line requests, and return the exit code."""
    track, vehicle = load_track(arguments.track), load_vehicle(arguments.vehicle)
    profile, look = load_wire(arguments.profile), load_look(arguments.look)
    for output in (arguments.record, arguments.json, arguments.shot):
        if output is not None:
            inputs = (arguments.track, arguments.vehicle, arguments.profile, arguments.look, arguments.residual)
            require_output(output, *inputs)
    if not 0.01 <= arguments.realtime <= 100:
        raise UserError(f"--realtime {arguments.realtime:g}: must lie between 0.01 and 100")
    if arguments.lockstep and arguments.realtime != 1.0:
        raise UserError("--lockstep and --realtime exclude each other: in lock-step the client sets the pace")
    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed}: must not be negative")
    require_heat(arguments)
    world = resolve(arguments.world, track, vehicle)
    if arguments.shot is not None:
        shoot(arguments.shot, world.track, world.vehicle, world.seen(look), arguments.seed, arguments.pose_at)
        return 0
    if isinstance(profile, BetaflightProfile):
        if arguments.pilots > 1:
            raise UserError(f"--pilots {arguments.pilots}: has no meaning with the MSP profile {profile.name}")
        return race_betaflight(arguments, profile, world, look, Narrator(arguments.json))
    for name, usual in BY_MSP.items():
        if getattr(arguments, name) != usual:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option}: profile {profile.name} is for MAVLink; --profile betaflight is for MSP")
    residual = residual_of(arguments, vehicle)
    if arguments.pilots > 1:
        return race_heat(arguments, profile, world, look, residual)
    return race_mavlink(arguments, profile, world, look, residual, Narrator(arguments.json))


def main() -> None:
    """Run `race-sim` and exit with its code."""
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()
