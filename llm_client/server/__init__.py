"""The reference server. Shares no code with the client."""
