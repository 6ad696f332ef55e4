"""Listeners: logs and metrics."""
