"""Mudi's methods: training next to inference, the SM% that co-residents need, and the batch found by measuring."""
