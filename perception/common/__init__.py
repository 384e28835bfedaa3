"""Parts common to the classical and the learned detector: geometry of quadrilaterals, sub-pixel edges, covariances."""
