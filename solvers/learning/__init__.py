"""Learns how a measured curve differs from a declared one: filters of its regions, and a fit that correlates them."""
