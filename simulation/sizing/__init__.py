"""Finds what to rent for a load: the cheapest GPUs that carry every moment of it, confirmed by simulation."""
