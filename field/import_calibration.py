"""Command line of `import-calibration`."""

import argparse
from pathlib import Path

from gate_racer.common.command import add_common, main_of


def parser() -> argparse.ArgumentParser:
    """Return the command line of `import-calibration`."""
    p = argparse.ArgumentParser(
        prog="import-calibration", description="Take a camera's lens from a calibration file into a vehicle's file."
    )
    p.add_argument(
        "file", type=Path, help="calibration of OpenCV, ROS (camera_info), Kalibr (camchain) or COLMAP (cameras.txt)"
    )
    p.add_argument("vehicle", nargs="?", default="dcl", help="vehicle of all else, the mount included (default: dcl)")
    p.add_argument("--out", type=Path, help="vehicle file to write; else the camera is only shown")
    add_common(p, "the camera and its residual")
    return p


main = main_of(parser, "gate_racer.field.calibration")
