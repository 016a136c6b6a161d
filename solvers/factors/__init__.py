"""Factorization machines trained by FTRL-Proximal: (model, GPU type) pairs that were never measured (OLTunes, O1)."""
