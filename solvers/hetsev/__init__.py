"""HetSev's methods: how many instances of which type a service runs, and which GPU takes each."""
