"""Proofs of copies that are pods: on a real API server, its controllers and scheduler, and kubelets of ours."""
