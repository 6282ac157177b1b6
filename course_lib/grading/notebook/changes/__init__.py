"""What statements change without binding it, told from their text."""
