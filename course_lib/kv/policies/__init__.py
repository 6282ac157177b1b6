"""One paper, one file. An EvictionPolicy placed here is found by the conformance suite."""
