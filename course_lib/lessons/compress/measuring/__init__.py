"""The steps of the measurement of lesson 10: what each of them trains, evaluates and returns as rows."""
