"""What pyproject.toml cannot say: in the package, a checkout's notebooks and kernels lie inside the library.

It is built in a folder of its own: in `build`, what has left the library would stay for the next wheel.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import find_namespace_packages, setup

kernels = ["course_lib.kernels", *(f"course_lib.kernels.{name}" for name in find_namespace_packages("kernels"))]
packages, folders = [*find_namespace_packages(include=["course_lib*"]), *kernels], {"course_lib.kernels": "kernels"}
if Path("notebooks").is_dir():  # what grades one lesson elsewhere has none
    packages, folders["course_lib.notebooks"] = [*packages, "course_lib.notebooks"], "notebooks"
with TemporaryDirectory() as built:
    setup(packages=packages, package_dir=folders, options={"build": {"build_base": built}})
