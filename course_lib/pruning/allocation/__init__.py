"""How many weights of each layer are pruned; a pruner then chooses which ones."""
