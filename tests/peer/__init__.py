"""A second simulator of VADR-TS-002, written from the documents alone: it shares no code, and no author's habits, with `sim/`."""
