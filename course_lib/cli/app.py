"""The `course` command. Every command imports what it needs when it runs, so that `course --help` is quick."""

import io
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from course_lib.compose.reading import MOST_SEED

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
STOPPED = "Stopped. Run the same command to continue; `course progress` shows how far you are."
Names = Annotated[list[str] | None, typer.Argument(help="Lesson numbers or names (default: all lessons).")]


def _print_version(is_asked: bool | None) -> None:
    if is_asked:
        from importlib.metadata import version

        Console().print(f"sparsity-workbook {version('sparsity-workbook')}", highlight=False)
        raise typer.Exit()


@app.callback()
def course(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = None,
) -> None:
    """A hands-on course on sparsity in large language models."""


@app.command()
def setup() -> None:
    """Fetch and verify the model, the texts and the benchmarks."""
    from course_lib.data.assets import cache
    from course_lib.workbook.folders import to_open

    code = cache.setup()
    if code == 0:
        Console().print(f"Next: [bold]course doctor[/], or [bold]{to_open()}[/].")
    raise typer.Exit(code)


@app.command()
def doctor() -> None:
    """Check this machine: Python, torch, GPU, kernels, JupyterLab, cache, model, speed."""
    from course_lib.cli import doctor
    from course_lib.workbook.folders import to_open

    code = doctor.run()
    if code == 0:
        Console().print(f"Next: [bold]{to_open()}[/].")
    raise typer.Exit(code)


@app.command()
def lab(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to serve on (default: a free one).")] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser window.")] = True,
    prepare: Annotated[bool, typer.Option("--prepare", help="Run setup and doctor first, as `make lab` does.")] = False,
) -> None:
    """Open JupyterLab on the first lesson."""
    from course_lib.cli import lab

    try:
        code = lab.run(port, browser, prepare)
    except KeyboardInterrupt:
        Console().print(STOPPED, soft_wrap=True)
        code = 0
    raise typer.Exit(code)


@app.command()
def start(
    folder: Annotated[Path, typer.Argument(help="Folder for the lessons; created if it does not exist.")],
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to serve on (default: a free one).")] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser window.")] = True,
    serve: Annotated[bool, typer.Option(help="Set up and open JupyterLab, or only write the lessons.")] = True,
) -> None:
    """Copy the lessons into a folder and open them there. Notebooks in which you wrote are never replaced."""
    from course_lib.cli import start

    try:
        code = start.run(folder.expanduser().resolve(), port, browser, serve)
    except KeyboardInterrupt:
        Console().print(STOPPED, soft_wrap=True)
        code = 0
    raise typer.Exit(code)


# BEGIN INSTRUCTORS: a student's copy does not have what is between these marks
@app.command()
def build(
    names: Names = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if a notebook is out of date.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace edited notebooks, and keep a copy of each.")] = False,
    masters: Annotated[Path | None, typer.Option(help="Folder for the masters as notebooks, with solutions.")] = None,
) -> None:
    """Write the student notebooks from the masters in solutions/."""
    from course_lib.workbook import build

    if masters:
        build.write_masters(masters)
        raise typer.Exit()
    raise typer.Exit(build.run(names, check=check, force=force))


# END INSTRUCTORS


@app.command()
def run(
    lesson: Annotated[str, typer.Argument(help="Lesson number or name, such as 04.")],
    # BEGIN INSTRUCTORS
    student: Annotated[bool, typer.Option("--student", help="Run the student notebook instead of the master.")] = False,
    # END INSTRUCTORS
    html: Annotated[bool, typer.Option("--html", help="Also write the executed notebook as HTML.")] = False,
) -> None:
    """Execute a lesson from top to bottom and keep the executed notebook under build/run/."""
    from course_lib.workbook import run

    which = {}
    # BEGIN INSTRUCTORS
    which = {"student": student}
    # END INSTRUCTORS
    raise typer.Exit(run.run(lesson, html=html, **which))


@app.command("check-notebook")
def check_notebook(
    notebook: Annotated[Path, typer.Argument(help="The notebook of a lesson, as you would hand it in.")],
) -> None:
    """Show how your notebook would be graded: which exercises are right, and which statements were not run."""
    from course_lib.cli import check_notebook

    raise typer.Exit(check_notebook.run(notebook, Console()))


@app.command()
def progress() -> None:
    """List solved and attempted exercises, hints and points for each lesson."""
    from course_lib.workbook import progress

    raise typer.Exit(progress.run())


@app.command()
def slides(
    names: Names = None,
    pdf: Annotated[bool, typer.Option(help="Also write a PDF, if Chromium is installed.")] = True,
) -> None:
    """Build the slides: one self-contained HTML file per lesson, in build/slides/."""
    from course_lib.workbook.decks import page

    raise typer.Exit(page.build(names, pdf))


# BEGIN INSTRUCTORS
@app.command()
def site(
    names: Names = None,
    with_solutions: Annotated[
        bool, typer.Option("--with-solutions", help="Fold the solution in under each exercise.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Execute every lesson again.")] = False,
    slides: Annotated[bool, typer.Option(help="Include the slides.")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder for the pages (default: build/site/html).")] = None,
) -> None:
    """Build the website: executed lessons, slides, claims, papers, glossary and a search. It needs no network."""
    from course_lib.workbook import masters

    masters.masters(names)  # a package has none and says so, before anything asks for Sphinx
    from course_lib.workbook.site import build

    raise typer.Exit(
        build.build(names, with_solutions=with_solutions, fresh=fresh, slides=slides, out=out and out.resolve())
    )


# END INSTRUCTORS


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="An experiment such as wanda, the number or name of a lesson, or all.")],
    out: Annotated[
        Path | None, typer.Option(help="JSON file to write, or a folder for all (default: next to the experiment).")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny samples and few blocks, only to see that every step works.")
    ] = False,
    resume: Annotated[bool, typer.Option(help="Keep finished steps.")] = True,
    only: Annotated[list[str] | None, typer.Option(help="With all: only these experiments; may be repeated.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With all: list the steps and how long they take.")
    ] = False,
) -> None:
    """Run a long measurement and write JSON with seed, sample sizes and machine; after an interruption it continues."""
    from course_lib.cli import reproduce, reproduce_all

    if name == "all":
        raise typer.Exit(reproduce_all.run(only or (), out, quick, resume, dry_run))
    if only or dry_run:
        raise ValueError(f"got --only or --dry-run with {name!r}; these options work only with `course reproduce all`.")
    raise typer.Exit(reproduce.run(reproduce.called(name), out, quick, resume))


# BEGIN INSTRUCTORS: the page needs the exercises of all lessons, and a copy may have only some
@app.command()
def claims(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if the page is out of date.")] = False,
) -> None:
    """Write docs/claims.md: the claims of the sources, our measurements, and the verdicts."""
    from course_lib.cli import claims

    raise typer.Exit(claims.run(check))


# END INSTRUCTORS


@app.command()
def challenge(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a JSON file; its prompt file is in the same folder.")],
    windows: Annotated[int, typer.Option(min=2, max=64, help="Number of windows per domain.")] = 4,
    length: Annotated[
        int, typer.Option(min=64, max=2048, help="Tokens per window; the cache is counted at 1024.")
    ] = 1024,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Random seed of the windows.")] = 0,
    held: Annotated[
        float,
        typer.Option("--stored", help="Largest fraction of the dense model's bytes to store.", show_default="1/3"),
    ] = 1 / 3,
    read: Annotated[
        float, typer.Option(help="Largest fraction of the dense model's bytes to read per token.", show_default="1/4")
    ] = 1 / 4,
) -> None:
    """Measure a recipe of lesson 12: stored bytes, bytes read per token, and loss, compared with the dense model.

    A model never reads more than it stores, so the two limits differ: a third of the bytes stored, a quarter read. For
    example, with a 4-bit cache, 4-bit weights in groups of 32 meet the first limit and miss the second unless each
    token skips neurons; 3-bit weights meet both.
    """
    from course_lib.cli import challenge
    from course_lib.compose.challenge.budget import Budget

    budget = Budget(held=held, read=read)
    raise typer.Exit(challenge.run(recipe, windows, length, seed, budget, Console()))


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Kernels to time (default: all).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the JSON files (default: build/bench).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, few repetitions.")] = False,
) -> None:
    """Time the kernels, on the GPU if there is one, and compare them with their roofline bounds."""
    from course_lib.cli import bench

    raise typer.Exit(bench.run(names, out, quick))


@app.command()
def prune(
    model: Annotated[str, typer.Argument(help="smollm2-135m, a folder, or a hub name.")],
    out: Annotated[Path, typer.Argument(help="Folder for the pruned checkpoint.")],
    method: Annotated[
        str, typer.Option(help="magnitude, wanda, sparsegpt, ...; an unknown name lists them.")
    ] = "wanda",
    pattern: Annotated[
        str, typer.Option(help="A sparsity such as 0.5, or N:M such as 2:4, which keeps N of M.")
    ] = "0.5",
    samples: Annotated[int, typer.Option(help="Number of calibration windows.")] = 32,
    length: Annotated[int, typer.Option(help="Tokens per window.")] = 512,
    seed: Annotated[int, typer.Option(help="Random seed of the calibration sample.")] = 0,
    allocation: Annotated[str, typer.Option(help="Sparsity per layer: uniform, owl or one-ranking.")] = "uniform",
    evaluate: Annotated[
        bool | None, typer.Option(help="Measure perplexity before and after (default: if the whole model fits).")
    ] = None,
    device_map: Annotated[
        str | None, typer.Option(help="'auto' spreads the model over GPUs, memory and disk with accelerate.")
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="Layers to keep dense, such as '*.mlp.down_proj' or 'blocks.0.*'; may be repeated."),
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="Make a smaller dense model instead of zeros: 'neurons=1126,blocks=24'.")
    ] = None,
    score: Annotated[
        str, typer.Option(help="With --shape: minitron, llmpruner, ...; an unknown name lists them.")
    ] = "minitron",
    distil: Annotated[
        int, typer.Option(min=0, help="With --shape: distillation steps, with the model as teacher.")
    ] = 0,
) -> None:
    """Prune a checkpoint block by block and save it for from_pretrained.

    Only one block is in memory at a time. After an interruption, the same command continues at that block.
    """
    if shape is not None:
        if ignore:
            raise ValueError("got --ignore with --shape, which makes all blocks smaller; expected one of the two.")
        from course_lib.cli import cut

        raise typer.Exit(
            cut.run(model, out, shape=shape, score=score, samples=samples, length=length, seed=seed, steps=distil)
        )
    from course_lib.cli import prune as command

    code = command.run(
        model,
        out,
        method=method,
        pattern=pattern,
        samples=samples,
        length=length,
        seed=seed,
        allocation=allocation,
        evaluation=evaluate,
        device_map=device_map,
        ignore=ignore or (),
    )
    raise typer.Exit(code)


# BEGIN INSTRUCTORS
@app.command()
def grade(
    submissions: Annotated[Path, typer.Argument(help="A folder of notebooks, folders or zips, or one zip.")],
    out: Annotated[Path, typer.Option(help="Folder for grades, feedback and report.")],
    lesson: Annotated[
        str | None, typer.Option(help="Lesson number or name; not needed if the file names contain it.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Submissions in parallel (default: one per core).")] = None,
    seed: Annotated[int, typer.Option(help="Random seed; each student's inputs depend on it and on the id.")] = 0,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Processor time per submission (default: 240 s); an exercise may use half of it, a call 20 s."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the grades that are still valid.")] = False,
    pattern: Annotated[
        str | None, typer.Option(help="Where the student's id is in a path, such as '{student}/{lesson}.ipynb'.")
    ] = None,
    roster: Annotated[
        Path | None, typer.Option(help="File with one student id per line; all of them get rows.")
    ] = None,
    sandbox: Annotated[str, typer.Option(help="bwrap, or none: no protection, only for your own notebooks.")] = "bwrap",
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask cluster to grade on.")] = None,
    canvas: Annotated[
        str | None, typer.Option(help="Also write canvas.csv, for this column, such as 'Lesson 04 (1234)'.")
    ] = None,
    moodle: Annotated[str | None, typer.Option(help="Also write moodle.csv, for this grade item.")] = None,
    known_by: Annotated[
        str | None, typer.Option(help="The ids in that file: 'SIS Login ID', 'Email address', 'Identifier', ...")
    ] = None,
) -> None:
    """Grade a class: students' functions run in a sandbox, and their results are compared outside."""
    from course_lib.grading import run

    request = run.Request(
        submissions,
        out,
        lesson,
        jobs=jobs,
        seed=seed,
        seconds=seconds,
        resume=resume,
        kind=sandbox,
        pattern=pattern,
        roster=roster,
        scheduler=scheduler,
        canvas=canvas,
        moodle=moodle,
        known_by=known_by,
    )
    raise typer.Exit(run.run(request, Console()))


@app.command("grade-challenge")
def grade_challenge(
    submissions: Annotated[Path, typer.Argument(help="A folder of recipes, folders or zips, or one zip.")],
    out: Annotated[Path, typer.Option(help="Folder for grades and the ranking.")],
    text: Annotated[
        Path | None, typer.Option(help="A text that no student has, instead of the held-out articles.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=MOST_SEED, help="Random seed of the windows (default: a new one, stored in OUT)."),
    ] = None,
    windows: Annotated[int, typer.Option(min=4, max=64, help="Windows of 1024 tokens per domain.")] = 32,
    held: Annotated[
        float,
        typer.Option("--stored", help="Largest fraction of the dense model's bytes to store.", show_default="1/3"),
    ] = 1 / 3,
    read: Annotated[
        float, typer.Option(help="Largest fraction of the dense model's bytes to read per token.", show_default="1/4")
    ] = 1 / 4,
    jobs: Annotated[int, typer.Option(min=1, help="Recipes in parallel; each may use 8 GiB.")] = 1,
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Processor time per recipe.", show_default="60 per window")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep measured recipes.")] = False,
    pattern: Annotated[
        str | None, typer.Option(help="Where the student's id is in a path, such as '{student}/recipe.json'.")
    ] = None,
    roster: Annotated[
        Path | None, typer.Option(help="File with one student id per line; all of them get a row.")
    ] = None,
    canvas: Annotated[str | None, typer.Option(help="Also write canvas.csv, for this column.")] = None,
    moodle: Annotated[str | None, typer.Option(help="Also write moodle.csv, for this grade item.")] = None,
    known_by: Annotated[str | None, typer.Option(help="The ids in that file, as in `course grade`.")] = None,
) -> None:
    """Grade the challenge of lesson 12: build each recipe, count its bytes, and measure its loss."""
    from course_lib.compose.challenge.budget import Budget
    from course_lib.grading.challenge import run

    request = run.Request(
        submissions,
        out,
        text=text,
        seed=seed,
        windows=windows,
        budget=Budget(held=held, read=read),
        jobs=jobs,
        seconds=seconds,
        resume=resume,
        pattern=pattern,
        roster=roster,
        canvas=canvas,
        moodle=moodle,
        known_by=known_by,
    )
    raise typer.Exit(run.run(request, Console()))


@app.command()
def release(
    out: Annotated[Path | None, typer.Option(help="Zip file for the students' copy, without answers.")] = None,
    nbgrader: Annotated[Path | None, typer.Option(help="Folder for nbgrader's source tree.")] = None,
    gradescope: Annotated[Path | None, typer.Option(help="Zip file for a Gradescope autograder of one lesson.")] = None,
    lesson: Annotated[
        list[str] | None, typer.Option(help="Release only these lessons (and 00); may be repeated.")
    ] = None,
) -> None:
    """Make the students' copy, or assignments for nbgrader or Gradescope, from a checkout of the course."""
    from course_lib.grading.release import command as release

    raise typer.Exit(release.run(out, nbgrader, gradescope, lesson, Console()))


# END INSTRUCTORS


def main() -> None:
    """Run the command; a mistake in what was asked for is one clear line, not a traceback."""
    for stream in (sys.stdout, sys.stderr):  # into a file, Windows writes a code page that lacks ∑ and ≥
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except (ValueError, OSError) as error:
        Console(stderr=True).print(Text.assemble(("error ", "bold red"), str(error)), soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
