"""Assets: models, texts and benchmarks from packages, which are downloaded once and verified by checksum."""
