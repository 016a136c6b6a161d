"""Between cycles: nodes are brought to the plan in force, jobs live, operators are obeyed."""
