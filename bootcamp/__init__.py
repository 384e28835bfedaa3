"""Flight programming exercises: one command per step, a process per stage, seeded scenarios.

seed, world.yaml -> scenario.py -> Scenario
camera -> program.py (the learner's `decide`, see api.py) -> command -> drone.py -> camera; crew.py runs it as a ring of processes
flight -> stages.py -> log -> judge.py -> verdict; many -> grade.py; display.py shows
"""
