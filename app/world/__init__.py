"""The declared world: writes are decided, checked and stored in one transaction."""
