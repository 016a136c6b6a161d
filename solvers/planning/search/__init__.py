"""Searches for plans: prices from an LP, GPUs filled pattern by pattern at these prices, local search from there."""
