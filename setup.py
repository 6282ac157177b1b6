"""What pyproject.toml cannot say: in the package, the notebooks of a checkout lie inside the library.

It is built in a folder of its own: in `build`, what has left the library would stay for the next wheel.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import find_namespace_packages, setup

packages, folders = find_namespace_packages(include=["course_lib*", "course_kernels*"]), {}
if Path("notebooks").is_dir():  # what grades one lesson elsewhere has none
    packages, folders = [*packages, "course_lib.notebooks"], {"course_lib.notebooks": "notebooks"}
with TemporaryDirectory() as built:
    setup(packages=packages, package_dir=folders, options={"build": {"build_base": built}})
