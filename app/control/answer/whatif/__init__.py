"""What if: the same question asked of the world as it is and as it would be, and the answers side by side."""
