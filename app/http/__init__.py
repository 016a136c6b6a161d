"""Everything between the socket and the routes: deadlines, limits, authentication, logs, metrics, traces."""
