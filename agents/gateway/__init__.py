"""The sidecar beside HAProxy: its one writer, converging on the routes that nodes declare, and its counter."""
