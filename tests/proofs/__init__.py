"""What the control plane promises, tried on real processes: crashes, replicas, hostile and large inputs."""
