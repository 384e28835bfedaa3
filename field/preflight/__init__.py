"""`preflight`: an aircraft on the ground against the files by which it is to fly."""
