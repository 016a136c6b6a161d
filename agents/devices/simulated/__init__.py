"""Simulated GPUs as a product: a model of devices, MPS daemons and processes, in virtual time or as a real driver."""
