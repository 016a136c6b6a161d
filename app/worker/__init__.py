"""Processes of their own that answer orders, for what is slow, greedy or read from strangers.

Processes start in two other ways, which share too little with this: `solvers.planning.workers` forks, to begin with
all data of the parent, and imports nothing of `app`; `cli.children` keeps servers alive, which answer over sockets.
"""
