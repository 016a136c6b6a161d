"""A real API server of Kubernetes, and tests that our own clients and charts are right about it."""
