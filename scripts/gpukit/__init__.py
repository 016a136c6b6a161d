"""What can be shown on a GPU only: limits of MPS, settings, loads alone and in pairs, a hand-over, a real model."""
