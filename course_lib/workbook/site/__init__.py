"""`course site`: the course as pages that need no installation and no network."""
