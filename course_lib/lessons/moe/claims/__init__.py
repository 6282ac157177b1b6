"""What `course reproduce moe` and its companions measure, a claim a file."""
