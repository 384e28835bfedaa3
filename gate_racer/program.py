"""Public names for bootcamp programs. docs/bootcamp/reference.md documents them."""

from gate_racer.bootcamp.api import Box, Command, CourseGate, Go, Halt, Land, Location, Null, Report, Status

__all__ = ["Box", "Command", "CourseGate", "Go", "Halt", "Land", "Location", "Null", "Report", "Status"]
