"""What the exercises of lesson 12 ask for, from the library: what is called until a student's own answer is right."""
