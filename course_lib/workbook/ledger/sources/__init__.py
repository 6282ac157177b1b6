"""The documents, a file each: their claims in their order, in words of ours."""
