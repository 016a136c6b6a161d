"""Routes of workloads in a Kubernetes cluster whose replicas are decided."""
