"""The figures of lesson 06 from what the notebook computes. Each title says what the data show."""
