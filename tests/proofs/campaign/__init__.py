"""Thousands of faults of all kinds on one fleet in virtual time; after every tick, plain code checks I1 to I7.

Planner, store, Postgres, fast lane and the nodes' agents are the product's; devices, processes, the gateway and the
disk are models. With a defence removed, the same campaign must find a violation.
"""
