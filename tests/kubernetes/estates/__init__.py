"""Estates drawn by a seed, with a truth that knows nothing of the product, and what `assess` says of them."""
