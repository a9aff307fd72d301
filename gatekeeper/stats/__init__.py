"""Statistics of the gate: arrays and counts in, numbers out. No I/O, no clock, no global random state."""
