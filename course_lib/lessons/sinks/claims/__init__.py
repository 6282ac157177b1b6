"""What the experiments of lesson 08 measure, and their figures and verdicts, claim by claim."""
