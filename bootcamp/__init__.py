"""Flight programming exercises: one command per step, a process per stage, seeded scenarios; begin with `api.py`."""
