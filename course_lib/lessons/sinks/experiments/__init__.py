"""What `course reproduce four_ways` and `course reproduce first_tokens` measure."""
