"""The planner: from a world to a problem."""
