"""What `course reproduce` measures for lesson 03; each result is a JSON file with the name of its module."""
