"""InSS's methods: batches within every SLO, the latency of one task, and the throughput of a whole fleet."""
