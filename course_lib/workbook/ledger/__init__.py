"""The claims of the documents that the course is built from, and what became of each of them here.

`sources/` has a file for each document and a record for each claim in it; `rules/` has a file for each lesson and names
the lines of the lesson that judge a claim. Nothing is decided here: a lesson's line gives the verdict, and the effects
behind it are overheard while the lesson prints it.
"""
