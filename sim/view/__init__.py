"""What the drone's camera sees: a drawn world, or the corners of its gates without any drawing."""
