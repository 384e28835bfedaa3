"""Truth and belief in one place: a race in a simulator of one's own.

command line -> settings.py -> request.py -> session.py -> lockstep.py, or pilot/live.py
World (truth) -> sim -> messages, exposures -> lockstep.py -> pilot (belief) -> commands -> sim -> verdict
serving.py: the simulator as a program; campaign/: many flights, in tables
"""
