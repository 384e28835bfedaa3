"""Several vehicles in one race: each a simulator of its own, solid, seen and felt by the others."""
