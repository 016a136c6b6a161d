"""What is written to HAProxy, told it at its socket, and read back from it."""
