"""Turn a folder in any layout that course systems export into submissions, without opening a notebook."""
