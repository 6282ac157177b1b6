"""One file per paper. The conformance tests find every EvictionPolicy in this folder."""
