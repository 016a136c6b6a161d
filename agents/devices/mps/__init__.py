"""NVIDIA's MPS through its control program: one daemon per GPU, each with its own pipe directory."""

from agents.devices.mps.control import MpsControl

__all__ = ["MpsControl"]
