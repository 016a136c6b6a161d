"""What runs on a GPU node."""
