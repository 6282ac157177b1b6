"""Benches of the kernels in course_kernels/per_token/."""
