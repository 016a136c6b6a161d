"""HetSev's methods: choose how many instances of each type a service runs, and the GPU of each instance."""
