"""`gate-racer`: lists of what can be flown, checks of this machine, and completion scripts."""

import argparse
import sys
from pathlib import Path

from gate_racer.commands import COMMANDS
from gate_racer.completion import SHELLS, completion
from gate_racer.doctor import examine
from link.msp.profile import FOLDER as MSP_PROFILES
from link.profile import FOLDER as PROFILES
from mpc.problem.settings import CONTROLLERS
from sim.view.look import FOLDER as LOOKS
from sim.worlds.distribution import FOLDER as WORLDS
from tracks.track import FOLDER as TRACKS
from vehicle.command import add_common, perform, write_json
from vehicle.config import names
from vehicle.errors import say
from vehicle.launch import DISTRIBUTION
from vehicle.vehicle import FOLDER as VEHICLES

FOLDERS = {  # folder of the named files, by kind and option
    "tracks": TRACKS,
    "vehicles (--vehicle)": VEHICLES,
    "wire profiles (--profile)": PROFILES,
    "flight controllers by MSP (race-sim --profile)": MSP_PROFILES,
    "worlds (--world)": WORLDS,
    "looks (--look)": LOOKS,
}


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog=DISTRIBUTION,
        description="Plans and flies races of drones through gates.",
        epilog="Each command answers --help; it stands by its own name too: run-mpc is gate-racer run-mpc.",
    )
    add_common(arguments, "what is told")
    what = arguments.add_subparsers(dest="what", required=True, metavar="COMMAND")
    listing = "tracks, vehicles, wire profiles, worlds, looks and controllers that have a name"
    doctor = "what this machine has, what is slower or missing, and what mends it"
    for name, told in {"list": listing, "doctor": doctor}.items():
        add_common(what.add_parser(name, help=told), "what is told", within=True)
    told = "a script that completes commands, options and names: source it, or put it where your shell looks"
    what.add_parser("completion", help=told).add_argument("shell", choices=SHELLS)
    for name in COMMANDS:
        what.add_parser(name, add_help=False)
    return arguments


def run(arguments: argparse.Namespace) -> int:
    if arguments.what == "list":
        known = {kind: names(folder) for kind, folder in FOLDERS.items()} | {
            "controllers (--controller)": list(CONTROLLERS)
        }
        for kind, named in known.items():
            say(f"{kind}: {', '.join(named)}")
        write_json(arguments.json, {kind.partition(" (")[0]: named for kind, named in known.items()})
        say("Each takes the path of a YAML file as well.")
        return 0
    if arguments.what == "completion":
        say(completion(arguments.shell, COMMANDS))
        return 0
    findings = examine(Path.cwd())
    for finding in findings:
        say(finding.line)
    write_json(arguments.json, findings)
    return 0 if all(finding.good for finding in findings if finding.needed) else 1


def main() -> None:
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()
