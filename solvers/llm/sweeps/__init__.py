"""Loads that a tool offers to a server of a language model, and what they measure."""
