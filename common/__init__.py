"""What all rooms share and is no vehicle: files, configuration, command lines, processes, caches."""
