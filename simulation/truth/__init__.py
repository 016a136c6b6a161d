"""A physics of GPUs that knows nothing of the planner's formulas: simulated fleets run on it, if asked.

A seed draws kinds of GPU and models from one family: computing, DRAM bandwidth, L2, launches, power by activity.
Neighbours take from each other what they share; slowdowns saturate and do not add up. docs/simulation.md describes it.
"""
