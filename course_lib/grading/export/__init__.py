"""Export results as tables that course systems can import."""
