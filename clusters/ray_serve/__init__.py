"""Ray Serve as an engine of replicas: what a file adopts, what its dashboard says of it, and the writes that scale it.

Ray is asked by REST alone: nothing of Ray is imported. What decides and records is the same as for Kubernetes.
"""
