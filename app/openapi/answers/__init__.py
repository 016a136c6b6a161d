"""Schemas of what the API answers, by the noun that an answer is about."""
