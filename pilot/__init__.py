"""`run-mpc`: the pilot, which joins estimation, control and the link."""
