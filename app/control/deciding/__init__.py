"""What is asked of the solver at one moment, and what of its answer may be done: pure."""
