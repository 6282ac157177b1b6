"""Cases that the students' copy of the course lacks: one file per lesson, each with HIDDEN = {exercise id: cases}."""
