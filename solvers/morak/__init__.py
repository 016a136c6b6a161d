"""Morak's methods: choose SM%, batch and clock of every GPU within latency limits, caps and a power budget."""
