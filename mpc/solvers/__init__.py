"""Solver back-ends: acados, and CasADi alone."""
