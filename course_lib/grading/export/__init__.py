"""Results to the tables that course systems read."""
