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
    help="The workbook on sparsity in large language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
STOPPED = "Stopped. Next time give the same command; `course progress` shows how far you are."
Names = Annotated[list[str] | None, typer.Argument(help="Lesson numbers or names; all of them when left out.")]


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
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port to serve on; a free one when left out.")
    ] = None,
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
    folder: Annotated[Path, typer.Argument(help="Where the lessons go; it is made if it is not there.")],
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port to serve on; a free one when left out.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser window.")] = True,
    serve: Annotated[bool, typer.Option(help="Set up and open JupyterLab; else only write the lessons.")] = True,
) -> None:
    """Put the lessons into a folder of yours and open them there. What you wrote is never replaced."""
    from course_lib.cli import start

    try:
        code = start.run(folder.expanduser().resolve(), port, browser, serve)
    except KeyboardInterrupt:
        Console().print(STOPPED, soft_wrap=True)
        code = 0
    raise typer.Exit(code)


# BEGIN INSTRUCTORS: what stands between these marks is left out of a student's copy
@app.command()
def build(
    names: Names = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if a notebook is out of date.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace changed notebooks, keeping a copy of each.")] = False,
    masters: Annotated[Path | None, typer.Option(help="Write the masters, with solutions, as notebooks here.")] = None,
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
    html: Annotated[bool, typer.Option("--html", help="Write the executed notebook as HTML too.")] = False,
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
    """Show what grading makes of your notebook: which exercises are right, and what was not run."""
    from course_lib.cli import check_notebook

    raise typer.Exit(check_notebook.run(notebook, Console()))


@app.command()
def progress() -> None:
    """Show what is solved, attempted and hinted at, lesson by lesson."""
    from course_lib.workbook import progress

    raise typer.Exit(progress.run())


@app.command()
def slides(
    names: Names = None,
    pdf: Annotated[bool, typer.Option(help="Write a PDF too, where Chromium is present.")] = True,
) -> None:
    """Build the decks: one self-contained HTML file each, under build/slides/."""
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
    slides: Annotated[bool, typer.Option(help="Put the decks beside the lessons.")] = True,
    out: Annotated[Path | None, typer.Option(help="Where the pages go; build/site/html when left out.")] = None,
) -> None:
    """Build the site: executed lessons, decks, claims, papers, glossary and a search, as pages that need no network."""
    from course_lib.workbook import masters

    masters.masters(names)  # a package has none and says so, before anything asks for Sphinx
    from course_lib.workbook.site import build

    raise typer.Exit(
        build.build(names, with_solutions=with_solutions, fresh=fresh, slides=slides, out=out and out.resolve())
    )


# END INSTRUCTORS


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(help="Which experiment, such as wanda, a lesson's number or name; or all of them: all.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where the JSON goes, a folder for all; beside the experiment when left out.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny samples, few blocks: only to see that every step works.")
    ] = False,
    resume: Annotated[bool, typer.Option(help="Keep the steps that are finished.")] = True,
    only: Annotated[list[str] | None, typer.Option(help="With all: these alone. May be given several times.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With all: say what would be done, and how long.")] = False,
) -> None:
    """Measure a long table: resumable, written as JSON with seed, sample sizes and machine."""
    from course_lib.cli import reproduce, reproduce_all

    if name == "all":
        raise typer.Exit(reproduce_all.run(only or (), out, quick, resume, dry_run))
    if only or dry_run:
        raise ValueError(f"got --only or --dry-run with {name!r}; expected them with `course reproduce all` alone.")
    raise typer.Exit(reproduce.run(reproduce.called(name), out, quick, resume))


# BEGIN INSTRUCTORS: the page needs the exercises of all lessons, of which a copy may lack some
@app.command()
def claims(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if the page is out of date.")] = False,
) -> None:
    """Write docs/claims.md: every claim of the sources, its verdict, and the numbers behind it."""
    from course_lib.cli import claims

    raise typer.Exit(claims.run(check))


# END INSTRUCTORS


@app.command()
def challenge(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a JSON file; a prompt lies beside it.")],
    windows: Annotated[int, typer.Option(min=2, max=64, help="Windows of each domain to evaluate on.")] = 4,
    length: Annotated[
        int, typer.Option(min=64, max=2048, help="Tokens per window; the cache is counted at 1024.")
    ] = 1024,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the windows.")] = 0,
    held: Annotated[float, typer.Option(help="Share of the dense bytes to hold at most.", show_default="1/3")] = 1 / 3,
    read: Annotated[
        float, typer.Option(help="Share of the dense bytes to read a token at most.", show_default="1/4")
    ] = 1 / 4,
) -> None:
    """Measure a recipe of lesson 12 in full: a third of the bytes held, a quarter read, and the loss beside dense.

    Whoever holds a third reads a third or less, so the limit on what is read is a quarter: weights on 4 bits in groups
    of 32 keep the third and not the quarter unless tokens leave out neurons; on 3 bits they keep both.
    """
    from course_lib.cli import challenge
    from course_lib.compose.challenge.budget import Budget

    budget = Budget(held=held, read=read)
    raise typer.Exit(challenge.run(recipe, windows, length, seed, budget, Console()))


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Which kernels; all of them when left out.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where the JSON goes.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, few repetitions.")] = False,
) -> None:
    """Time the kernels beside their bounds, on the GPU when there is one."""
    from course_lib.cli import bench

    raise typer.Exit(bench.run(names, out, quick))


@app.command()
def prune(
    model: Annotated[str, typer.Argument(help="smollm2-135m, a folder, or a hub name.")],
    out: Annotated[Path, typer.Argument(help="The folder to write the pruned checkpoint to.")],
    method: Annotated[str, typer.Option(help="magnitude, wanda, sparsegpt, ...; a wrong name lists them.")] = "wanda",
    pattern: Annotated[str, typer.Option(help="A sparsity such as 0.5, or N:M kept such as 2:4.")] = "0.5",
    samples: Annotated[int, typer.Option(help="Calibration windows.")] = 32,
    length: Annotated[int, typer.Option(help="Tokens per window.")] = 512,
    seed: Annotated[int, typer.Option(help="Seed of the calibration sample.")] = 0,
    allocation: Annotated[str, typer.Option(help="What each layer loses: uniform, owl or one-ranking.")] = "uniform",
    evaluate: Annotated[
        bool | None, typer.Option(help="Perplexity before and after; when left out, if the whole model fits.")
    ] = None,
    device_map: Annotated[
        str | None, typer.Option(help="'auto' spreads the model over GPUs, memory and disk by accelerate.")
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="Layers to leave dense, such as '*.mlp.down_proj' or 'blocks.0.*'; may be repeated."),
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="Cut to a smaller dense model in place of zeros: 'neurons=1126,blocks=24'.")
    ] = None,
    score: Annotated[
        str, typer.Option(help="With --shape: minitron, llmpruner, ...; a wrong name lists them.")
    ] = "minitron",
    distil: Annotated[int, typer.Option(min=0, help="With --shape: steps of distillation from the whole model.")] = 0,
) -> None:
    """Prune a checkpoint, block by block, into one that from_pretrained loads.

    One block at a time is in memory. After an interruption the same command goes on at the block where it was.
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
    submissions: Annotated[Path, typer.Argument(help="A folder of notebooks, of folders, or of zips; or one zip.")],
    out: Annotated[Path, typer.Option(help="Where grades, feedback and report go.")],
    lesson: Annotated[
        str | None, typer.Option(help="Lesson number or name; may be left out when the files' names tell it.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Submissions at a time; one a core when left out.")] = None,
    seed: Annotated[int, typer.Option(help="Each student's inputs are drawn from this and the student's id.")] = 0,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Processor time of one submission, 240 s when left out; one exercise has half of it, a call 20 s."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the grades that are still valid.")] = False,
    pattern: Annotated[
        str | None, typer.Option(help="Where the student's id is in a path, such as '{student}/{lesson}.ipynb'.")
    ] = None,
    roster: Annotated[Path | None, typer.Option(help="One student id a line; who is missing gets rows too.")] = None,
    sandbox: Annotated[str, typer.Option(help="bwrap, or none: no protection, for your own machine only.")] = "bwrap",
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask cluster to grade on.")] = None,
    canvas: Annotated[
        str | None, typer.Option(help="Write canvas.csv too, for this column, such as 'Lesson 04 (1234)'.")
    ] = None,
    moodle: Annotated[str | None, typer.Option(help="Write moodle.csv too, for this grade item.")] = None,
    known_by: Annotated[
        str | None, typer.Option(help="What the ids are there: 'SIS Login ID', 'Email address', 'Identifier', ...")
    ] = None,
) -> None:
    """Grade a class: the students' functions run in a sandbox, and what they return is compared outside."""
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
    submissions: Annotated[Path, typer.Argument(help="A folder of recipes, of folders, or of zips; or one zip.")],
    out: Annotated[Path, typer.Option(help="Where grades and the ranking go.")],
    text: Annotated[
        Path | None, typer.Option(help="A text of yours that no student has, in place of held-out articles.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=MOST_SEED, help="Of the windows; drawn and kept in OUT when left out.")
    ] = None,
    windows: Annotated[int, typer.Option(min=4, max=64, help="Windows of 1024 tokens of each domain.")] = 32,
    held: Annotated[float, typer.Option(help="Share of the dense bytes to hold at most.", show_default="1/3")] = 1 / 3,
    read: Annotated[
        float, typer.Option(help="Share of the dense bytes to read a token at most.", show_default="1/4")
    ] = 1 / 4,
    jobs: Annotated[int, typer.Option(min=1, help="Recipes at a time; each takes up to 4 GB.")] = 1,
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Of the processor, for one recipe.", show_default="60 a window")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what is measured.")] = False,
    pattern: Annotated[
        str | None, typer.Option(help="Where the student's id is in a path, such as '{student}/recipe.json'.")
    ] = None,
    roster: Annotated[Path | None, typer.Option(help="One student id a line; who is missing gets a row too.")] = None,
    canvas: Annotated[str | None, typer.Option(help="Write canvas.csv too, for this column.")] = None,
    moodle: Annotated[str | None, typer.Option(help="Write moodle.csv too, for this grade item.")] = None,
    known_by: Annotated[str | None, typer.Option(help="What the ids are there.")] = None,
) -> None:
    """Grade the challenge of lesson 12: recipes are data, and the grader builds, counts and reads for itself."""
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
    out: Annotated[Path | None, typer.Option(help="The students' copy, a zip without any answer.")] = None,
    nbgrader: Annotated[Path | None, typer.Option(help="A folder for nbgrader's source tree.")] = None,
    gradescope: Annotated[Path | None, typer.Option(help="An autograder for Gradescope, a zip; of one lesson.")] = None,
    lesson: Annotated[
        list[str] | None, typer.Option(help="Give out these lessons (and 00) only; may be repeated.")
    ] = None,
) -> None:
    """Make what students get, or what nbgrader and Gradescope take, from a checkout of the course."""
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
