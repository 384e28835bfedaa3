"""A learned policy in the place of a plan and a controller: what it observes, its network, and the file that it comes in."""
