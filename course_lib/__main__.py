"""Run `python -m course_lib` as the `course` command, for a shell that does not find it on its PATH."""

from course_lib.cli.app import main

if __name__ == "__main__":
    main()
