"""NVIDIA's MPS through its control program: one daemon per GPU, each with a pipe directory of its own."""

from agents.devices.mps.control import MpsControl

__all__ = ["MpsControl"]
