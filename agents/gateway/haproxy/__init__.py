"""Writes the configuration of HAProxy, changes it through its socket, and reads back what is in force."""
