"""The world as it is, apart from what anybody believes of it: deviations as data, distributions, and the truth they make."""
