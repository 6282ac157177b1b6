"""What `course reproduce moe` and its companions measure, one question per file."""
