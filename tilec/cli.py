"""The command line: argument parsing, and how answers, errors and interruptions leave the process. The work is done elsewhere."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType

from tilec import cli_commands
from tilec.cli_answer import Answer, Progress
from tilec.errors import InternalError, TilecError
from tilec.report.verdict import error_data
from tilec.runtime import backends

EXIT = {"fine": 0, "no": 1, "mistake": 2, "fault": 3, "interrupted": 130}
FAULT = "This is a fault of tilec, not yours. Please report it with the kernel, the schedule and the output of --traceback."
KERNEL_HELP = "a library kernel (see: tilec list) or file.py:name"
SIZES_HELP = "sizes, as M=1024"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="tilec",
        description="Schedule affine loop nests: see the proof, the pseudocode and the cost; pick a schedule; run it.",
        epilog="exit status: 0 fine, 1 the answer is no, 2 a mistake, 3 a fault of tilec, 130 interrupted (143: SIGTERM)",
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="one JSON object on standard output (keys: docs/cli.md)")
    common.add_argument("--traceback", action="store_true", help="show where in tilec or in your file an error was raised")
    common.add_argument("--quiet", action="store_true", help="no progress on standard error")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[common])

    def pictured(p: argparse.ArgumentParser) -> None:
        p.add_argument("--plot", metavar="PATH", help="draw it into a .svg, .png or .pdf file (extra: plot)")

    def permissions(p: argparse.ArgumentParser) -> None:
        p.add_argument("--reassociate", action="append", metavar="BUFFER", help="its float sum may change its order")
        p.add_argument("--contract", action="store_true", help="a multiply-add may round once")
        p.add_argument("--hardware-rounding", action="store_true", help="an instruction may flush denormals and add in its order")

    def scheduled(p: argparse.ArgumentParser) -> None:
        p.add_argument("kernel", help=KERNEL_HELP)
        p.add_argument("sizes", nargs="*", metavar="SIZE", help=SIZES_HELP)
        p.add_argument("--schedule", metavar="FILE:NAME", help="a function of the fresh schedule, a schedule, or a trace.json")
        permissions(p)
        p.add_argument("--proof-budget", type=positive, metavar="N", help="isl operations per proof")

    p = command("list", "The kernels of the library, the targets, the primitives.")
    p.add_argument("what", nargs="?", choices=("kernels", "targets", "primitives"), help="only these")

    p = command("show", "The pseudocode of a kernel or of its schedule.")
    scheduled(p)
    p.add_argument("--form", default="element", help=f"element (default), or a backend: {', '.join(backends.names('emit'))}")
    p.add_argument("--trace", action="store_true", help="the steps of the schedule as Python")

    p = command("emit", "The code of a schedule: C, NumPy, or another backend's text.")
    scheduled(p)
    p.add_argument("--backend", default="c", help=f"c (default), or another: {', '.join(backends.names('emit'))}")
    p.add_argument("-o", "--output", metavar="PATH", help="write to this file (with --compile: into this folder)")
    p.add_argument(
        "--compile",
        action="store_true",
        help="c: compile, and save source, header, shared object and description; triton: its resources on --target",
    )
    p.add_argument("--vector-bytes", type=int, choices=(16, 32, 64), help="c: the vector registers it is shaped for")
    p.add_argument("--target", help="triton: the machine (see: tilec list targets)")
    p.add_argument("--warps", type=positive, help="triton: warps per block (a power of two; chosen by the tiles by default)")
    p.add_argument("--group", type=positive, help="triton: rows of tiles that run side by side (default 8)")
    p.add_argument("--workers", type=positive, help="triton: compilers at once (default: one per kernel, at most one per core)")

    p = command("check", "The verdict on a schedule: legal, illegal with a witness, or unknown with the reason.")
    scheduled(p)

    p = command("cost", "What a schedule costs on a target.")
    scheduled(p)
    p.add_argument("--target", required=True, help="a machine (see: tilec list targets)")
    p.add_argument("--threads", type=positive, help="threads per block, where the schedule binds none")
    p.add_argument("--registers", type=positive, help="registers per thread, where they are known")
    pictured(p)

    p = command("tune", "Pick a schedule for a target: prove, fit, price, rank.")
    p.add_argument("kernel", help=KERNEL_HELP)
    p.add_argument("sizes", nargs="*", metavar="SIZE", help=SIZES_HELP)
    p.add_argument("--target", required=True, help="a machine (see: tilec list targets)")
    p.add_argument("--top", type=positive, default=10, help="rows of the table (default 10)")
    p.add_argument("--threads", type=positive, help="threads per block, where a structure binds none")
    p.add_argument("--seed", type=int, default=0, help="of the sampling, where not all candidates can be priced (default 0)")
    pictured(p)
    m = p.add_argument_group("measuring", "the best by the model are compiled, verified and timed on this computer")
    m.add_argument("--measure", action="store_true", help="measure them")
    m.add_argument("--candidates", type=positive, metavar="N", help="how many at most (default 16)")
    m.add_argument("--seconds", type=seconds, metavar="S", help="start nothing new after so long (default 60)")
    m.add_argument("--repeats", type=positive, metavar="N", help="samples of each (default 9)")
    m.add_argument("--limit", type=seconds, metavar="S", help="kill a candidate whose run takes longer (default 20)")
    m.add_argument("--compile-limit", type=seconds, metavar="S", help="kill a compiler that takes longer (default 60)")
    m.add_argument("--cpus", type=positive, metavar="N", help="threads that a candidate uses (default: the cores)")
    m.add_argument(
        "--backend",
        metavar="NAME",
        help=f"c (default), or another: {', '.join(backends.names('timed'))}, your own as module:function",
    )
    m.add_argument("--compiler", metavar="NAME", help="a C compiler (default: $CC, gcc, clang)")
    m.add_argument("--no-verify", action="store_true", help="do not compare results with the reference")
    m.add_argument("--database", metavar="FILE", help="SQLite file that keeps measurements (default: in the cache folder)")
    permissions(p)

    p = command("run", "Run a schedule on random inputs and compare it with the reference, bit for bit.")
    scheduled(p)
    p.add_argument("--backend", default="numpy", help=f"numpy (default), or another backend: {', '.join(backends.names('run'))}")
    p.add_argument("--seed", type=int, default=0, help="of the inputs (default 0)")

    p = command("occupancy", "Blocks per SM of a launch, what limits them, and what would gain one more.")
    p.add_argument("target", help="a machine or a compute capability such as 8.6")
    p.add_argument("--threads", type=positive, help="per block")
    p.add_argument("--registers", type=natural, help="per thread")
    p.add_argument("--shared", type=byte_count, default=0, metavar="BYTES", help="shared memory per block: 98304 or 96KiB")
    p.add_argument("--carveout", type=natural, metavar="PERCENT", help="of the largest shared memory")
    p.add_argument("--barriers", type=natural, default=1, help="named barriers per block (default 1)")
    pictured(p)

    p = command("target", "The figures of a machine, each with its source.")
    p.add_argument("target", help="a machine, a file.toml, or a compute capability")
    p.add_argument("--measure", action="store_true", help="host: measure its rates now (10 s) and keep them")
    p.add_argument("--compiler", metavar="NAME", help="for --measure: a C compiler (default: $CC, gcc, clang)")
    return top


def natural(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no integer >= 0")
    return int(text)


def positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer >= 1")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds > 0")
    return value


def byte_count(text: str) -> int:
    found = re.fullmatch(r"(\d+) ?(B|KiB|MiB)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes: write 98304 or 96KiB")
    return int(found[1]) * {"KiB": 1024, "MiB": 1024**2}.get(found[2], 1)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Options; sizes may also stand behind them (argparse itself takes the first run of positional words only)."""
    top = parser()
    options, rest = top.parse_known_args(argv)
    if rest and (not hasattr(options, "sizes") or any(word.startswith("-") for word in rest)):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.sizes += rest
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = parse(argv)
    progress = Progress(sys.stderr, quiet=options.quiet)
    try:
        answer: Answer = getattr(cli_commands, f"command_{options.command}")(options, progress)
        print(json.dumps(answer.data, ensure_ascii=False) if options.json else answer.text)
        sys.stdout.flush()
        return answer.code
    except BrokenPipeError:  # `tilec list | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT["fine"]
    except KeyboardInterrupt as stop:
        progress.end()
        print("\n  ".join([f"interrupted: {progress.summary()}", *getattr(stop, "__notes__", [])]), file=sys.stderr)
        return 128 + stop.number if isinstance(stop, Terminated) else EXIT["interrupted"]
    except TilecError as error:
        return _refuse(error, options, progress)
    except Exception as fault:
        text = f"{options.command} failed with {type(fault).__name__}: {fault}\n  {FAULT}"
        return _refuse(InternalError(text), options, progress)


def _refuse(error: TilecError, options: argparse.Namespace, progress: Progress) -> int:
    """Show an error; called while the exception that it stands for is handled."""
    progress.end()
    if options.traceback:
        traceback.print_exc()
    if options.json:
        print(json.dumps({"error": error_data(error)}, ensure_ascii=False))
    print("\n  ".join([error.render(), *getattr(error, "__notes__", [])]), file=sys.stderr)
    return EXIT["fault" if isinstance(error, InternalError) else "mistake"]


class Terminated(KeyboardInterrupt):
    """A signal that asks the process to end: handled like Ctrl-C, so that nothing is lost or left behind."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
    raise Terminated(number)


def entry() -> None:
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one
            signal.signal(number, _terminate)
    sys.exit(main())


if __name__ == "__main__":
    entry()
