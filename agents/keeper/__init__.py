"""Brings what runs on this node to what the newest assignment says, without losing a request."""
