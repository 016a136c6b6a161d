"""The scaler: it decides how many replicas adopted workloads of a Kubernetes cluster should have, and writes them."""
