"""OLTunes: shapes by latency, throughput and power, and GPUs shared by models that suit each other."""
