#!/usr/bin/env bash
# Gradescope runs this once, as root, when the autograder is built: Python, the pinned packages, and the sandbox.
set -euo pipefail
cd /autograder/source

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends bubblewrap
for version in 3.13 3.12 3.11; do # the newest that this image has
    apt-get install -y -qq --no-install-recommends "python$version" "python$version-venv" && break
done
"python$version" -m venv /autograder/environment
/autograder/environment/bin/python -m pip install --quiet -r requirements.lock
/autograder/environment/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
/autograder/environment/bin/python -m course_lib.grading.release.gradescope --look
