"""The vehicle: parameters, rotations, equations of motion and camera; and utilities that all rooms share."""
