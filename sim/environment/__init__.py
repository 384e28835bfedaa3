"""Races as an environment to learn in: many vehicles at once, observations, rewards and starts of Swift."""
