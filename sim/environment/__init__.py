"""Reinforcement-learning environment: vectorised races with the observations, rewards and starts of Swift."""
