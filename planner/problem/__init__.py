"""The time-optimal problem: terms, bounds, meshes and solution by IPOPT; and the point mass for its initial guess."""
