"""Measurements on an unknown simulator or aircraft before a race.

link at rest and on a short flight -> probe/ -> comparison with a profile; aircraft on the ground -> preflight/
logs -> identify/ -> vehicle file; mapping/ -> track file; report/ -> pages and films; last runs -> improve.py -> all three
"""
