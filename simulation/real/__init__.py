"""What `gpuwright up` runs in earnest: processes that end with it, a gateway with real servers, and their requests."""
