"""What `course reproduce kv`, `heavy` and `own_text` measure; each writes its result next to it."""
