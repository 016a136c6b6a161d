"""Level L2: what is saved by a plan for the workloads whose models have profiles."""
