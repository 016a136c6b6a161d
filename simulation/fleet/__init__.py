"""A simulated fleet: its nodes, its gateway, the messages between it and the store, and a log of both."""
