"""How much each layer loses; not which of its weights."""
