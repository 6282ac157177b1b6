"""The `course` command: app.py lists what there is; a command that belongs to no other folder has a file here."""
