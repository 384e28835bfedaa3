"""How far a vehicle that flies a plan will be from it, as a covariance, and the margins that a given risk asks for."""
