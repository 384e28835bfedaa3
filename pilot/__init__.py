"""The pilot, which joins estimation, control and the link, and knows no simulator.

messages, images -> pilot.py: handshake.py until GO, then estimator and guidance/ -> commands
socket -> live.py, or lockstep.py where the simulator waits; images -> perception_process.py
flight -> records/ -> log, result, live view
"""
