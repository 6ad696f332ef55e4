"""The protocol. Bytes and mappings in, models and outcomes out; no I/O."""
