"""Drivers of a pilot: lock-step, in real time, over a network; and the end of every flight."""
