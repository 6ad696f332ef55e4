"""The typed client."""
