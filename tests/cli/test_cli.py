"""The command line: every command answers --help, reaches its function, and turns a user's mistake into one line."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from course_lib.cli import app

COMMANDS = [command.callback.__name__ for command in app.app.registered_commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    result = CliRunner().invoke(app.app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_the_commands_of_the_plan_are_there():
    assert {"doctor", "setup", "lab", "build", "run", "progress", "slides", "reproduce", "bench", "prune"} <= set(
        COMMANDS
    )


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
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(arguments, said):
    program = "from course_lib.cli.app import main; main()"
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert said in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("module", ["course_lib.cli.app", "course_lib.measure.result_files"])
def test_help_and_results_are_quick_because_nothing_heavy_is_imported(module):
    heavy = "('torch', 'transformers', 'matplotlib')"
    program = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
