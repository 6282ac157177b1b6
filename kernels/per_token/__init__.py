"""What one token computes of a layer that is there in full: its neurons, its inputs, its heads."""
