"""InSS's methods: batches under every SLO, the latency of one task, and the throughput of a whole fleet."""
