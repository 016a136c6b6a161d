"""What migration 0006 makes: the schema `report`, its tables, who may read what, and every view with its comments."""
