"""Answers what-ifs: plans the world as it is and as it would be, and compares the two plans."""
