"""The MultiWii serial protocol (MSP) as Betaflight speaks it: frames, messages, sticks and the order of requests."""
