"""What the papers of lesson 11 claim, judged by what was measured, a paper a file."""
