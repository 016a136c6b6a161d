"""The only SQL: one module a noun, whole statements, named for what they answer."""
