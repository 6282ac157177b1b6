"""Hugging Face owns the import name `kernels`; a folder of that name at the top of a checkout must not take it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib import kernels
from course_lib.kernels import runtime

pytestmark = pytest.mark.skipif(runtime.INTERPRETED, reason="imports are the same without the interpreter")
ROOT = Path(__file__).parents[2]
# What transformers reads of a model family, with what it says of the package and where our own kernels come from.
PROGRAM = """
import importlib.util
spec = importlib.util.find_spec("kernels")
import transformers.models.llama.modeling_llama
from transformers.utils import is_kernels_available
from course_lib.kernels import runtime
print(spec.origin if spec else None, is_kernels_available(), runtime.__file__, sep="|")
"""
# Whatever transformers imports from the package is a class here, whose instances can also decorate.
STAND_IN = """
class Anything:
    def __init__(self, *given, **named): pass
    def __call__(self, decorated=None): return decorated

def __getattr__(name):
    return type(name, (Anything,), {})
"""


def told(folder: Path, *after: Path) -> list[str]:
    """The program's output when it is started in a folder, with other folders later on the path."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, after)), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip().split("|")


def test_the_folder_has_no_init():
    """With one, `import kernels` in a checkout is ours, and with Hugging Face's installed no model can be imported."""
    assert not list(Path(kernels.__path__[0]).glob("__init__.*"))


@pytest.mark.skipif(not (ROOT / "kernels").is_dir(), reason="an installed package has no folder at the top")
def test_models_import_with_and_without_a_package_named_kernels(tmp_path):
    pytest.importorskip("transformers")
    origin, available, ours = told(ROOT)
    assert (origin, available) == ("None", "False")
    assert Path(ours) == ROOT / "kernels" / "runtime.py"
    from transformers.utils.import_utils import KERNELS_MIN_VERSION

    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text(STAND_IN)
    metadata = tmp_path / f"kernels-{KERNELS_MIN_VERSION}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: kernels\nVersion: {KERNELS_MIN_VERSION}\n")
    origin, available, ours = told(ROOT, tmp_path)  # started in the checkout, so its folder comes first on the path
    assert (Path(origin), available) == (tmp_path / "kernels" / "__init__.py", "True")
    assert Path(ours) == ROOT / "kernels" / "runtime.py"
