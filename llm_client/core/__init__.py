"""Decisions. Pure: `now` and `rng` are arguments, nothing here does I/O or reads a clock."""
