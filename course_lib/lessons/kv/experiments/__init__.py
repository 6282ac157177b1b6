"""What `course reproduce kv` and `course reproduce heavy` measure, step by step."""
