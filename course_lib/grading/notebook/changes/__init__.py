"""Find what statements change without binding it, from their text."""
