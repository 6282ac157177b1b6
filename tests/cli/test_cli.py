"""The command line: every command answers --help, reaches its function, and turns a user's mistake into one line."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from course_lib.cli import app

COMMANDS = [command.name or command.callback.__name__ for command in app.app.registered_commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    result = CliRunner().invoke(app.app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_the_commands_of_the_plan_are_there():
    assert {"doctor", "setup", "lab", "build", "run", "progress", "slides", "reproduce", "bench", "prune"} <= set(
        COMMANDS
    )


def test_the_version_is_that_of_the_package():
    result = CliRunner().invoke(app.app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"sparsity-workbook {version('sparsity-workbook')}\n"


def test_progress_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_HOME", str(tmp_path))
    result = CliRunner().invoke(app.app, ["progress"])
    assert result.exit_code == 0, result.output
    assert "04 Wanda" in result.output
    assert "Nothing attempted yet" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "99"], "error got lesson '99'; expected one of"),
        (
            ["prune", "smollm2-135m", "out", "--method", "luck"],
            "error got method 'luck'; expected one of",
        ),
        (["prune", "smollm2-135m", "out", "--pattern", "4:2"], "error got pattern '4:2'"),
        (["reproduce", "magic"], "error got"),
        (["prune", "smollm2-135m", "out", "--shape", "neurons=8", "--ignore", "*"], "error got --ignore with --shape"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(arguments, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["course", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert said in printed.err.replace("\n", " ")
    assert "Traceback" not in printed.err + printed.out


@pytest.mark.parametrize("module", ["course_lib", "course_lib.cli.app"])
def test_a_mistake_ends_the_process_with_1_and_no_traceback(module):
    """Also by way of the module, for a shell that does not find `course`."""
    result = subprocess.run([sys.executable, "-m", module, "run", "99"], capture_output=True, text=True, check=False)
    assert "got lesson '99'" in result.stderr
    assert (result.returncode, "Traceback" in result.stderr) == (1, False)
    assert result.stderr.startswith("error got lesson '99'; expected one of")


POOL = "import course_lib.grading.workers.pool; assert not {'jupytext', 'nbformat'} & set(sys.modules)"


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        ("import course_lib.cli.app", ("torch", "transformers", "matplotlib", "jsonschema")),
        ("import course_lib.measure.result_files", ("torch", "transformers", "matplotlib")),
        # Every process that grades begins with it. Models and figures cost it five seconds.
        ("from course_lib.workbook.catalogue import lessons; lessons()", ("transformers", "matplotlib", "datasets")),
        # A process that grades does without what only notebooks need; the one that starts it reads the masters.
        (f"{POOL}; import course_lib.grading.run", ("transformers", "matplotlib", "datasets", "sklearn")),
    ],
)
def test_what_should_be_quick_imports_nothing_heavy(program, heavy):
    program = f"import sys; {program}; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
