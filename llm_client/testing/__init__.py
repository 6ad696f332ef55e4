"""Tools for users' tests: virtual time, simulation, a server fixture."""
