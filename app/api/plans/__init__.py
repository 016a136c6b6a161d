"""Routes of plans: their history, their content, and what operators say of them."""
