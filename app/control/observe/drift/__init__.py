"""Corrects profiles by measurements, each region of a curve by its own, slowly enough to keep plans stable."""
