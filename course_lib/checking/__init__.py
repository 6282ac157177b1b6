"""Check an answer against an exercise: definition, call, comparison, and verdict; independent of lessons."""
