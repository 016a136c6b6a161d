"""Converging: what runs on this node becomes what the newest assignment says, without a request lost."""
