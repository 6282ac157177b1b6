"""The experiments of lesson 09: each has a command, `course reproduce NAME`, and writes NAME.json next to it."""
