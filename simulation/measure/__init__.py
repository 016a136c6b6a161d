"""Measures a fleet that the real planner runs in virtual time: what it costs, what it could cost, how it serves."""
