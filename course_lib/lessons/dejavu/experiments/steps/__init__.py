"""What `course reproduce dejavu` and its companions measure, one question per file."""
