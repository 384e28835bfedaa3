"""Simulator that speaks VADR-TS-002, as a stand-in for the competition's closed one.

models, deviations -> worlds/ -> World, the truth
command -> simulator.py: physics/ (plant), referee.py -> messages -> wire/ -> datagrams
exposure -> view/ -> images, or corners without images
several simulators -> multi_vehicle.py; behind a flight controller -> betaflight/; for learning -> environment/
"""
