"""One paper, one file. A LayerPruner placed here is found by the conformance suite and by `course prune`."""
