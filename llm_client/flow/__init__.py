"""The order of things, written once as generators that ask for I/O by yielding an effect."""
