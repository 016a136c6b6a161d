"""The physics of simulated GPUs against published figures, and plans by measured profiles carried out on it."""
