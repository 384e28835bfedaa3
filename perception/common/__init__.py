"""Parts that the classical and the learned detector share: geometry of quadrilaterals, sub-pixel edges, covariances."""
