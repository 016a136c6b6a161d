"""The helpers of docker-compose.yml: keys, nodes that join, load, faults, and a guide."""
