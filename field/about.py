"""`gate-racer`: what there is to fly, and what this machine has to fly it with."""

import argparse
import sys
from pathlib import Path

import link.msp.profile
import link.profile
import sim.view.look
import sim.worlds.distribution
import tracks.track
import vehicle.vehicle
from field.doctor import examine
from mpc.problem.settings import CONTROLLERS
from vehicle.config import names
from vehicle.errors import exit_code, say
from vehicle.launch import COMMANDS, DISTRIBUTION

FOLDERS = {  # what is known by name, and the option that takes it
    "tracks": tracks.track.FOLDER,
    "vehicles (--vehicle)": vehicle.vehicle.FOLDER,
    "wire profiles (--profile)": link.profile.FOLDER,
    "flight controllers by MSP (race-sim --profile)": link.msp.profile.FOLDER,
    "worlds (--world)": sim.worlds.distribution.FOLDER,
    "looks (--look)": sim.view.look.FOLDER,
}


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog=DISTRIBUTION,
        description="Plans and flies races of drones through gates.",
        epilog="Each command answers --help; it stands by its own name too: run-mpc is gate-racer run-mpc.",
    )
    what = arguments.add_subparsers(dest="what", required=True, metavar="COMMAND")
    what.add_parser("list", help="tracks, vehicles, wire profiles, worlds, looks and controllers that have a name")
    what.add_parser("doctor", help="what this machine has, what is slower or missing, and what mends it")
    for name in COMMANDS:
        what.add_parser(name, add_help=False)
    return arguments


def run(arguments: argparse.Namespace) -> int:
    if arguments.what == "list":
        for kind, folder in FOLDERS.items():
            say(f"{kind}: {', '.join(names(folder))}")
        say(f"controllers (--controller): {', '.join(CONTROLLERS)}")
        say("Each takes the path of a YAML file as well.")
        return 0
    findings = examine(Path.cwd())
    for finding in findings:
        say(finding.line)
    return 0 if all(finding.good for finding in findings if finding.needed) else 1


def main() -> None:
    sys.exit(exit_code(lambda: run(parser().parse_args())))


if __name__ == "__main__":
    main()
