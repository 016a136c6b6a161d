"""Plans language models: their instances hold whole GPUs of a node, and all else gets the GPUs that are left."""
