"""Flight programming exercises: one command per step, a process per stage, seeded scenarios.

seed, tasks.yaml -> scenario.py -> Scenario; world.yaml -> Arena
camera -> program.py (the learner's `decide`, see api.py) -> command -> drone.py -> camera; crew.py runs it as a ring of processes
flight -> record.py -> log -> judge.py -> verdict; many -> grade.py; display.py shows
"""
