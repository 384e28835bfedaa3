"""The vision protocol of the RflySim platform: messages of RflySim3D and CopterSim, typed.

Little-endian, no padding. World NED, body FRD, image BGR.
"""
