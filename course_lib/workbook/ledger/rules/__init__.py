"""Which line of a lesson judges what: a file for each lesson, a name for each line."""
