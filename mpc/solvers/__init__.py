"""Back-ends that solve a problem: acados, and CasADi alone."""
