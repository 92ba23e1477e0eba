"""The one file that knows Triton's inside: compile a kernel without a GPU, read its machine code, run it in the interpreter.

A program of its own, `python -m tilec.runtime.triton_adapter compile|interpret|device`: one JSON request a line on standard
input, one JSON answer a line on standard output. So tilec itself never imports Triton, several compilers run at once, and a
crash stays outside.
Written for Triton 3.9 (RANGE in triton_worker.py); tests/triton/test_adapter.py holds what is used here against the installed.

    compile     {text, kernel, signature: {parameter: type}, constants: {parameter: value}, divisible: [parameter],
                capability: 90, options: {num_warps, num_stages, enable_fp_fusion}}
             -> {registers, shared, stack, spills, matrix: {mnemonic: count}, instructions, tensor_memory, ptx_conversions}
    interpret   {text, entry, arguments: [[parameter, name, dtype or None]], data: FILE.npz, out: FILE.npz,
                outputs: [[name, dtype]]}
             -> {}
    device      {text, entry, device, arrays: [[parameter, dtype, shape]], others: {parameter: number}} -> {seconds}
    hello    -> {}
    each     -> {error}

PyTorch is imported for `interpret` only; `compile` puts an empty module in its place, since the launcher in the text names it.
The interpreter of Triton 3.9 multiplies the bit patterns of bf16 tiles and drops bits where it should round to bf16 or f8; both
are replaced (triton_interpreter.py) by exact conversions, which is what the hardware's `cvt.rn` does.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import collections
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

MATRIX = re.compile(r"\b(?:[HIQD]MMA|[HIQ]GMMA|UTC[A-Z]*MMA|OMMA)\b")
MODE = sys.argv[1] if __name__ == "__main__" and len(sys.argv) > 1 else ""
if MODE == "interpret":
    os.environ["TRITON_INTERPRET"] = "1"
elif MODE == "compile":
    sys.modules["torch"] = types.ModuleType("torch")

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from triton.compiler import compile as triton_compile  # noqa: E402

from tilec.runtime.triton_load import load  # noqa: E402


def tool(name: str) -> str:
    """A program that Triton ships: cuobjdump, nvdisasm, ptxas."""
    return str(Path(str(triton.__file__)).parent / "backends" / "nvidia" / "bin" / name)


def compiled(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One kernel compiled for one architecture, and what its machine code says."""
    kernel = getattr(load(request["text"], folder), request["kernel"])
    names = list(kernel.arg_names)
    constants = {(names.index(k),): v for k, v in request["constants"].items()}
    attributes = {(names.index(n),): [["tt.divisibility", 16]] for n in request["divisible"]}
    source = ASTSource(kernel, request["signature"], constants, attributes)
    made = triton_compile(source, target=GPUTarget("cuda", request["capability"], 32), options=request["options"])
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(made.asm["cubin"])
    found = resources(cubin)
    conversions = sorted(set(re.findall(r"\bcvt(?:\.[a-z0-9]+)*\.(?:bf16|f16|e4m3|e5m2)(?:x2)?\.f32", made.asm["ptx"])))
    return {
        **found,
        "shared": made.metadata.shared,
        "tensor_memory": getattr(made.metadata, "tmem_size", 0) or 0,
        "ptx_conversions": conversions,
    }


def resources(cubin: Path) -> dict[str, Any]:
    """Registers per thread, stack bytes per thread and instructions, read with the disassembler that Triton ships."""
    usage = _output([tool("cuobjdump"), "--dump-resource-usage", str(cubin)])
    code = _output([tool("cuobjdump"), "-sass", str(cubin)])
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump prints no registers: {usage[-200:]!r}")
    words = collections.Counter(re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", code, re.MULTILINE))
    return {
        "registers": int(found[1]),
        "stack": int(found[2]),
        "spills": words["STL"] + words["LDL"],
        "matrix": {k: n for k, n in sorted(words.items()) if MATRIX.fullmatch(k)},
        "instructions": sum(words.values()),
    }


def _output(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{Path(argv[0]).name} failed: {done.stderr.strip()[-200:]}")
    return done.stdout


def main() -> None:
    """Answer requests until the input ends. What Triton and its tools print goes to a file: on standard output it would stand
    among the answers, and nobody empties the pipe of standard error."""
    answers = os.fdopen(os.dup(1), "w")
    answer = compiled
    if MODE == "interpret":
        answer = importlib.import_module("tilec.runtime.triton_interpreter").answered
    elif MODE == "device":
        answer = importlib.import_module("tilec.runtime.triton_device").timed
    with tempfile.TemporaryDirectory(prefix="tilec-triton-") as folder, open(Path(folder) / "printed", "w") as printed:
        for stream in (1, 2):
            os.dup2(printed.fileno(), stream)
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "cache")
        for line in sys.stdin:
            request = json.loads(line)
            try:
                out = {} if "hello" in request else answer(request, Path(folder))
            except Exception as e:
                text = str(e).strip() or type(e).__name__
                out = {"error": f"{type(e).__name__}: {text[-600:]}"}
            print(json.dumps(out), file=answers, flush=True)


if __name__ == "__main__":
    main()
