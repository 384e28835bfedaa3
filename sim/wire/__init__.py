"""Network side of the simulator: set-points and servers."""
