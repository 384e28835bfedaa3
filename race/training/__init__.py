"""`train-policy`: learn a racing policy in the batch plant, with PPO of rsl_rl."""
