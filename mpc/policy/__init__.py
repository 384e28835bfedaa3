"""A learned policy in the place of a plan and a controller: its network, its file, and commands by it."""
