"""Network side of the simulator: race procedure, set-points and servers."""
