"""The sidecar of HAProxy: its only writer, which applies the routes that nodes declare and counts requests."""
