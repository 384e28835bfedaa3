"""The time-optimal problem: its terms, bounds, meshes and its solution by IPOPT; and the point mass that it starts from."""
