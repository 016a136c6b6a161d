"""Planners by name: the joint planner and those of published systems, asked alike and judged alike.

`solvers.planners.ask.find_plan` is the function to call; import it from there, so that reading names stays cheap.
"""
