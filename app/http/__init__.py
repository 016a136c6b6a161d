"""Everything between the socket and the routes: deadlines, limits, who asks, logs, metrics, traces."""
