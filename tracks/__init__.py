"""Courses and the geometry of gates.

*.yaml -> track.py -> Track, checked; remarks on likely mistakes
Gate (gate.py) -> corners, crossing, margin, corridor: for planner, perception, referee and reports alike
state, Track -> observation.py -> what a learned policy sees
"""
