"""Public names for bootcamp programs. docs/bootcamp/reference.md documents them."""

from gate_racer.bootcamp.api import Box as Box
from gate_racer.bootcamp.api import Command as Command
from gate_racer.bootcamp.api import CourseGate as CourseGate
from gate_racer.bootcamp.api import Go as Go
from gate_racer.bootcamp.api import Halt as Halt
from gate_racer.bootcamp.api import Land as Land
from gate_racer.bootcamp.api import Location as Location
from gate_racer.bootcamp.api import Null as Null
from gate_racer.bootcamp.api import Report as Report
from gate_racer.bootcamp.api import Status as Status
