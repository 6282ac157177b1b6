"""What the notebook prints of lesson 10's long measurement, one question a function."""
