"""`run-mpc`: the pilot, which joins estimation, control and the link.

command line -> cli.py, arguments.py -> session.py -> run.py, modes.py -> drivers/ (real time or lock-step)
messages, images -> pilot.py: handshake.py until GO, then estimator and guidance/ -> commands
flight -> records/ -> log, result, live view
"""
