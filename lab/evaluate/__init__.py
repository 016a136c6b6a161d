"""Measures published systems on their own testbeds: each planner runs the same fleet under the same load."""
