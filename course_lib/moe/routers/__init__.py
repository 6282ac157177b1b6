"""One paper, one file. A Router placed here is found by the conformance suite."""
