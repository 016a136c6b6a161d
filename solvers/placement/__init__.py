"""Given instances onto given GPUs: in a batch with a proof, in HetSev's rounds, or one at a time in microseconds."""
