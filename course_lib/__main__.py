"""`python -m course_lib` is the `course` command, for a shell that does not find that on its PATH."""

from course_lib.cli.app import main

if __name__ == "__main__":
    main()
