"""Everything that the first revision creates, one module a noun."""
