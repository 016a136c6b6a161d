"""Routes in a cluster: a real API server, a real Envoy Gateway and its Envoy, in a network of their own."""
