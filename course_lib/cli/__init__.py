"""The `course` command: one file a command; what a command does beyond printing and exit codes lies elsewhere."""
