"""The MultiWii serial protocol (MSP) of Betaflight: frames, messages, sticks and the schedule of requests."""
