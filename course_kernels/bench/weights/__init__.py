"""Benches of the kernels in course_kernels/weights/."""
