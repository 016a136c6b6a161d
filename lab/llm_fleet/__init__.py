"""Compares plans for language models on several GPU types: ours, Melange's, one type's, and prefill and decode apart.

Times of iterations come from splitwise's measurements, lengths and rates from Azure's trace of conversations.
"""
