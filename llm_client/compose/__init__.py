"""The composition root: the pool."""
