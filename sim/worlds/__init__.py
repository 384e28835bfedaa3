"""The true world as opposed to the pilot's models: deviations as data, their distributions, and the resulting truth."""
