"""The certificate of a plan, independent of the optimisation problem."""
