"""YAML to a validated, frozen profile."""
