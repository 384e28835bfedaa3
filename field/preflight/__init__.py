"""`preflight`: checks of an aircraft on the ground against the files for its flight."""
