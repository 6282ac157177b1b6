"""What the notebook of lesson 12 tries live: recipes of a student's own, and what is handed in."""
