"""VADR-TS-002 as a table of rows: section, sentence, and what must hold."""

from tests.vadr.messages import commands, telemetry, transport
from tests.vadr.simulation import environment, timing
from tests.vadr.video import vision

ROWS = [*environment(), *transport(), *telemetry(), *commands(), *timing(), *vision()]
