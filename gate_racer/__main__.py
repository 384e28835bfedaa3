"""`python -m gate_racer run-mpc vq1`: the commands by the interpreter's path, wherever their scripts are."""

import sys

from gate_racer.commands import gate_racer

sys.exit(gate_racer())
