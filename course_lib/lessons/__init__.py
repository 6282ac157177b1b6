"""One folder per lesson: exercises, figures, experiments and their results. Lessons share the code in `common`."""
