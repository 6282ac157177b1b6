"""The figures of lesson 05: drawn, computed in the notebook, measured once."""
