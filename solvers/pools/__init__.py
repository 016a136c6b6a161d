"""Pools of servers for one language model: of servers that compute prompts and answers, or one pool for each.

A pool is the cheapest set of servers that carries a rate, and a simulation of every request's way through it says what
requests get. Nothing here knows a fleet: it is asked what to rent.
"""
