"""The simulator's behaviour on the wire: its races, its set-points, its servers."""
