"""Planners and predictors that papers compare themselves with, and that no operator is offered."""
