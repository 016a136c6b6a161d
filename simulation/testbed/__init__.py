"""What docker-compose.yml runs beside gpuwright itself: keys, nodes that join, load, faults, and a guide."""
