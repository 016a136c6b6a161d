"""The rules of the house: what must hold of the tree, its pages and its pins. `python -m scripts.house` checks all."""
