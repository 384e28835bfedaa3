"""Search for the best plan: initial guesses, mesh refinement, multistart."""
