"""The exercises of each lesson: one file a lesson, holding LESSON and EXERCISES."""
