"""What the experiments of lesson 11 share: the model and its text, questions, and what is read under a rule."""
