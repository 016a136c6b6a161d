"""The agent of a GPU node, and the other programs that run there."""
