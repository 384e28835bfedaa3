"""What runs a pilot: lock-step, in real time, over a network; and how every flight ends."""
