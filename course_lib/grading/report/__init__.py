"""Write results as pages: the instructor's report and each student's feedback."""
