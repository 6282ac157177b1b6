"""The course's own steps behind the exercises of lesson 11, which its notebook goes on with."""
