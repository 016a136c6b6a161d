"""Computes savings: compares the plan in force with three simple baselines, at the same load and prices."""
