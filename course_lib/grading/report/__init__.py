"""Results to pages: the instructor's report and each student's feedback."""
