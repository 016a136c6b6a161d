"""Simulated GPUs as a product: a model of devices and MPS daemons, in virtual time or as a real driver."""
