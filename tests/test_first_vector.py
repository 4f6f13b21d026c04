"""The first vector of a fresh process: what it imports, and what it leaves to be done later or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

FOREIGN = {
    *("bitsandbytes", "chromadb", "datasets", "fastapi", "langchain_core", "llama_index", "matplotlib", "nltk"),
    *("openai", "pandas", "peft", "pyarrow", "ray", "sentence_transformers", "sklearn", "spacy", "tantivy"),
    *("torchvision", "transformers.trainer", "eddy_embed.model.loading.on_disk"),
}
"""What `eddy embed` needs nothing of, installed or not; transformers imports scipy and torchao where they are."""
PROGRAM = """
import gc, json, sys, warnings
before = gc.get_stats()[2]["collections"]
from eddy_embed.cli import app
app(["embed", "one sentence"], standalone_mode=False)
print(json.dumps([gc.get_stats()[2]["collections"] - before, gc.isenabled(), sorted(sys.modules)]))
import logging, numpy
filters = [(action, message, kind) for action, message, kind, *_ in warnings.filters]
assert all(message is not None and message.match("size") is None for _, message, kind in filters if kind is Warning)
assert ("always", numpy.exceptions.RankWarning) in [(action, kind) for action, _, kind in filters]
assert logging.root.manager.disable == 0
warnings.warn("of the program's own")
"""


def test_the_command_imports_and_collects_only_what_it_must_and_hushes_what_is_installed_beside_it(
    tmp_path: Path,
) -> None:
    """transformers imports torchao where it is: here one that does not fit the installed torch, and complains."""
    module = tmp_path / "torchao" / "prototype" / "safetensors"
    module.mkdir(parents=True)
    (tmp_path / "torchao" / "__init__.py").write_text(
        "import logging, warnings\nwarnings.warn('another torch')\nlogging.getLogger('torchao').warning('no kernels')\n"
    )
    (module / "safetensors_support.py").write_text("flatten_tensor_state_dict = None\n")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}

    def run(code: str) -> tuple[str, str]:
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ)
        assert child.returncode == 0, child.stderr
        return child.stdout, child.stderr

    loud = run("import torchao")[1]
    assert "another torch" in loud and "no kernels" in loud
    out, heard = run(PROGRAM)
    (line,) = (line for line in heard.splitlines() if not line.startswith("Method "))
    assert "of the program's own" in line, heard
    collections, enabled, loaded = json.loads(out.splitlines()[-1])
    assert {"transformers.models.llama.modeling_llama", "torchao"} <= set(loaded)
    assert not FOREIGN & set(loaded)
    assert collections <= 1, "each walks through a million objects, and 6 were made"
    assert enabled
