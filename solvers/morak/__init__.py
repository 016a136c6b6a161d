"""Morak's methods: SM%, batch and clock of every GPU under latency, caps and a budget of watts."""
