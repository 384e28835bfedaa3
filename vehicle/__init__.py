"""What flies: its parameters, rotations, equations of motion and camera."""
