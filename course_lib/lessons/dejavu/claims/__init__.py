"""What `course reproduce dejavu` and its companions measure, a claim a file."""
