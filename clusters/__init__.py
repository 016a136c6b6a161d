"""What stands in a Kubernetes cluster and what it costs, read without a write, an agent or a database."""
