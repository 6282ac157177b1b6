"""`course site`: the course as web pages that need no installation and no network."""
