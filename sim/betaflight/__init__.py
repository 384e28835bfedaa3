"""Simulated Betaflight flight controller on a serial line: MSP requests and replies, receiver, arming and set-points."""
