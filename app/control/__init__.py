"""The planner: what is declared and known becomes a problem, and its answer a plan."""
