"""Simulator that speaks VADR-TS-002, as a stand-in for the competition's closed one."""
