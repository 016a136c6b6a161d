"""The declared world: what a write means, checked and kept in one transaction."""
