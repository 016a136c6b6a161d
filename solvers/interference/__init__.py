"""Interference on a shared GPU, from measured slowdowns: several models behind one seam, chosen by cross-validation."""
