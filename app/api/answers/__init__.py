"""Routes that answer questions: why something runs where it does, what would be, and how all of it stands."""
