"""The claims of the documents on which the course is based, and the verdict on each statement.

`sources` holds the statements of the documents, each with the id of the claim that judges it; the claims themselves are
records in course_lib/lessons/LESSON/claims.py. `course claims` writes docs/claims.md from both.
"""
