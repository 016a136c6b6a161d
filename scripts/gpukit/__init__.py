"""Tries what only a GPU can show: limits of MPS, settings, loads alone and in pairs, a hand-over, a real model."""
