"""What `course reproduce kv` measures, claim by claim."""
