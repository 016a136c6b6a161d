"""Routes of nodes and gateways: how they join, report and learn what to run, and what keeps plans off them."""
