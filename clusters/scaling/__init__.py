"""Replicas of workloads that are adopted: who sets them, whether they may be written, and the write itself.

Nothing here decides how many replicas a load needs. `adoption` finds the workloads that annotations adopt,
`ownership` says who else sets their replicas, `steps` bounds a change, and `writing` carries it out by `scale`.
"""
