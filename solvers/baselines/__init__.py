"""Baselines: policies of other systems that our planners are measured against."""
