"""Events for other systems: posted to addresses that the server's operator has listed, signed, and sent again."""
