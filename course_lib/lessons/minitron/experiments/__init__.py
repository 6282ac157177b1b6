"""What `course reproduce minitron` measures, a claim a file."""
