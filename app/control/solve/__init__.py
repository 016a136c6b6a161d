"""Finds plans in a process of its own, with a deadline: a crash there is an outcome and never ends the planner."""
