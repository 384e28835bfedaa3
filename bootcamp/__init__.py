"""Learning to fly: one command per step, a worker per stage, seeded scenarios. Begin with `api.py` and `examples/`."""
