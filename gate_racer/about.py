"""Command line of `gate-racer`."""

import argparse

from gate_racer.commands import COMMANDS, WITHIN
from gate_racer.common.command import add_common
from gate_racer.common.launch import DISTRIBUTION

WORK = "gate_racer.answers"
SHELLS = ("bash", "zsh", "fish")
NOTHING = "none"  # in place of a course in RflySim's scene


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog=DISTRIBUTION,
        description="Plan and fly drone races through gates.",
        epilog=f"Further commands: {', '.join((*WITHIN, *COMMANDS))}. Each has --help, and is also installed under its own name:"
        " run-mpc is gate-racer run-mpc; board is race-bench board.",
    )
    add_common(arguments, "the output")
    what = arguments.add_subparsers(dest="what", required=True, metavar="COMMAND")
    listing = "list all names: of tracks, vehicles, profiles, worlds, styles, controllers, detectors and so on"
    add_common(what.add_parser("list", help=listing), "the output", within=True)
    doctor = what.add_parser("doctor", help="check this machine, or RflySim, and name the remedy for what is missing")
    rflysim = "check a running RflySim instead, as `rflysim://HOST:PORT?config=Config.json`"
    doctor.add_argument("server", nargs="?", help=rflysim)
    add_common(doctor, "the findings", within=True)
    purpose = "copy the example programs to examples/ in this folder, and the lessons of the bootcamp and the pages on settings"
    purpose += " and on RflySim to docs/"
    add_common(what.add_parser("examples", help=purpose), "the files", within=True)
    purpose = "print a shell script that completes commands, options and names, to be sourced or installed"
    what.add_parser("completion", help=purpose).add_argument("shell", choices=SHELLS)
    scene = what.add_parser("rflysim-scene", help="place a course's gates and obstacles in RflySim3D's scene")
    scene.add_argument("track", help=f"name or file of a course, or `{NOTHING}` to remove those of earlier ones")
    scene.add_argument("server", nargs="?", default="rflysim", help="RflySim3D: `rflysim://HOST:PORT`")
    add_common(scene, "the boxes placed, missing and removed", within=True)
    bridge = what.add_parser("rflysim-bridge", help="receive RflySim's sensors, for ROS 2, a bag or a viewer")
    bridge.add_argument("server", help="`rflysim://HOST:PORT?config=Config.json&KEY=VALUE`, keys as of docs/rflysim.md")
    outputs = "`ros` to publish to ROS 2, `view` for Foxglove's viewers, or a new folder for a bag; none to report only"
    bridge.add_argument("outputs", nargs="*", metavar="OUTPUT", help=outputs)
    add_common(bridge, "the last report", within=True)
    for name in (*COMMANDS, *WITHIN):
        what.add_parser(name, add_help=False)
    return arguments
