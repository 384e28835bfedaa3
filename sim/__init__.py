"""The simulator: it speaks VADR-TS-002 and stands in for the closed one."""
