"""What planning saves: the plan in force against three plain ways of planning, for the same load at the same prices."""
