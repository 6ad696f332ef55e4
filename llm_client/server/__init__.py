"""The reference server: a GPU server small enough for a laptop. Shares no code with the client."""
