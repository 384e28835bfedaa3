"""The link: bytes to typed messages, and back; what one simulator does otherwise lies in its profile.

datagrams -> sockets.py -> client.py (MAVLink), video.py, reassembly.py (images) -> messages.py, stamped by clock.py
commands -> client.py -> datagrams; server.py, px4.py, race.py: the simulator's end
Betaflight: msp/; RflySim's sensors: rflysim/; logs: record.py, and logs/ those of others
"""
