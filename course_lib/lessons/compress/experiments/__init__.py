"""What `course reproduce` measures for lesson 10; each experiment writes NAME.json next to it."""
