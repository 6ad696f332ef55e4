"""Carry effects out: by blocking, by awaiting, in virtual time."""
