"""Public names for bootcamp programs, the same in a checkout and once installed. docs/bootcamp/reference.md documents them."""

from bootcamp.api import Box as Box
from bootcamp.api import Command as Command
from bootcamp.api import CourseGate as CourseGate
from bootcamp.api import Go as Go
from bootcamp.api import Halt as Halt
from bootcamp.api import Land as Land
from bootcamp.api import Location as Location
from bootcamp.api import Null as Null
from bootcamp.api import Report as Report
from bootcamp.api import Status as Status
