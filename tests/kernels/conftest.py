"""On a GPU, each test runs kernels with the setting that it asks for by a parameter, else with the first."""

import pytest
from kernel_device import COMPILED, use_setting

import course_lib.kernels
from course_lib import discover


@pytest.fixture(autouse=True)
def chosen_setting(request, monkeypatch):
    if COMPILED:
        parameters = getattr(request.node, "callspec", None)
        index = parameters.params.get("setting", 0) if parameters else 0
        for module in discover.nested(course_lib.kernels, course_lib.kernels.FOLDERS):
            use_setting(module, index, monkeypatch)
