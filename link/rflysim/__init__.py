"""The vision protocol of the RflySim platform: what its RflySim3D and CopterSim send and take, as typed messages.

Little-endian, no padding. World NED, body FRD, image BGR.
"""
