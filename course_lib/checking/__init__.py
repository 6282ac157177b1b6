"""An answer against an exercise: what an exercise is, calling a function, comparing, judging. No lesson is known."""
