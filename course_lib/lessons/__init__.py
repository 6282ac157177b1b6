"""One lesson, one folder: exercises, figures, an experiment beside its results; what two lessons need is in common."""
