"""What `course reproduce` measures for lesson 00; each result is a JSON file with the name of its module."""
