"""What a leader sees and hears: one consistent read, and what it remembers of the reports."""
