"""Talks to the API server of the cluster whose node this is, as the pod in which the agent runs."""
