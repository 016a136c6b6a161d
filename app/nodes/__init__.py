"""Traffic of nodes and gateways: reports in; assignments and endpoints out."""
