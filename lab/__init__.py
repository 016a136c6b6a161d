"""Research beside the product: benchmarks on public data, the experiments of papers, and the baselines of both."""
