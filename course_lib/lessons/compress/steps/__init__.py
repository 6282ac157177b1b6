"""The course's own steps behind the exercises of lesson 10, which its notebook goes on with."""
