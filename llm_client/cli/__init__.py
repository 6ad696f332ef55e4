"""The llm-client command, one file a sub-command."""
