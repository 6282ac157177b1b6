"""What `course reproduce prompts` measures, one question a file."""
