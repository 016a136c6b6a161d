"""Mudi's methods: training beside inference, the SM% that co-residents need, and the batch found by measuring."""
