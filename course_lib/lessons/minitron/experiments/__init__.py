"""What `course reproduce minitron` and its companions measure, one question per file."""
