"""The documents, one file each: their statements in order, in our own words."""
