"""A Betaflight flight controller on a slow serial line, simulated: what it is asked, what it answers, how it flies."""
