"""Proposes which nodes' GPUs to divide into MIG devices: how, what it saves, and in which order. It divides nothing."""
