"""`run-mpc`: joins estimation, control and the link, and flies."""
