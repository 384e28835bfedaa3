"""The search for the best plan: first guesses, refined meshes, several starts."""
