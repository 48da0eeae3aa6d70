"""The user's own kernel code: a folder of C files and patches that ``cct testbed build --with`` compiles in.

A folder has ``*.c`` (and ``*.h``) files, ``*.patch`` files, or both. Patches apply with ``patch -p1`` in the order of
their names. The C files are compiled as its ``Kbuild`` or ``Makefile`` says (``obj-m`` counts as ``obj-y``); without
one, each file on its own. So a folder that builds out-of-tree modules works as it is.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ParameterError

__all__ = ["KernelCode", "place", "read_kernel_code"]

#: Where the folders go in the kernel's tree.
PLACE = Path("net", "added")
_KBUILD = ("Kbuild", "Makefile")
_SOURCES = (".c", ".h", ".S")
#: Name in the kernel's tree of the folder's own Kbuild or Makefile.
_OWN = "own.mk"
#: Modules become part of the kernel, which is a single program.
_OBEY = f"include $(src)/{_OWN}\nobj-y += $(obj-m)\nobj-m :=\n"
_QDISC = re.compile(r"struct\s+Qdisc_ops\s+(\w+)[^=;{]*=\s*\{(.*?)\n\s*\};", re.S)
_CCA = re.compile(r"struct\s+tcp_congestion_ops\s+(\w+)[^=;{]*=\s*\{(.*?)\n\s*\};", re.S)
_REGISTERED = re.compile(r"\b(?:register_qdisc|tcp_register_congestion_control)\s*\(\s*&\s*(\w+)")
_ID = re.compile(r'\.id\s*=\s*"([^"\n]+)"')
_NAME = re.compile(r'\.name\s*=\s*"([^"\n]+)"')
_PARAMETER = re.compile(r"\bmodule_param(?:_named|_cb|_array)?(?:_named)?\s*\(\s*(\w+)")


@dataclass(frozen=True)
class KernelCode:
    """What a folder adds to the kernel.

    Attributes
    ----------
    folder : Path
        The folder.
    name : str
        Its name in the kernel's tree.
    sha256 : str
        Hash of the names and contents of its files.
    sources, patches : tuple of Path
        Files to compile or to include, and patches in order.
    qdiscs, ccas : dict
        What the sources register: name to ``{"module": …, "parameters": […]}``.
    """

    folder: Path
    name: str
    sha256: str
    sources: tuple[Path, ...]
    patches: tuple[Path, ...]
    qdiscs: dict[str, Any]
    ccas: dict[str, Any]


def read_kernel_code(folder: str | os.PathLike[str]) -> KernelCode:
    """Read a folder.

    Raises
    ------
    ParameterError
        It is not a folder, or has neither C files nor patches.
    """
    where = Path(folder)
    if not where.is_dir():
        raise ParameterError(f"--with: {where} is not a folder")
    files = sorted(path for path in where.iterdir() if path.is_file())
    sources = tuple(path for path in files if path.suffix in _SOURCES or path.name in _KBUILD)
    # left by a build for another kernel: NAME.mod.c
    sources = tuple(path for path in sources if not path.name.endswith(".mod.c"))
    patches = tuple(path for path in files if path.suffix in (".patch", ".diff"))
    if not patches and not any(path.suffix == ".c" for path in sources):
        raise ParameterError(f"--with: {where}: has no C file and no patch")
    digest = hashlib.sha256()
    for path in (*sources, *patches):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    qdiscs: dict[str, Any] = {}
    ccas: dict[str, Any] = {}
    modules = _modules(sources)
    texts = [(path.stem, path) for path in sources if path.suffix == ".c"]
    named = [(modules.get(stem, stem), path.read_text(errors="replace")) for stem, path in texts]
    for patch in patches:
        named += _added_files(patch.read_text(errors="replace"))
    for module, text in named:
        about = {"module": module.replace("-", "_"), "parameters": sorted(set(_PARAMETER.findall(text)))}
        for pattern, key, into in ((_QDISC, _ID, qdiscs), (_CCA, _NAME, ccas)):
            into |= dict.fromkeys(_names(text, pattern, key), about)
    name = re.sub(r"\W", "_", where.resolve().name) or "code"
    return KernelCode(where, name, digest.hexdigest(), sources, patches, qdiscs, ccas)


def _names(text: str, pattern: re.Pattern[str], key: re.Pattern[str]) -> list[str]:
    """The algorithms that a C file registers; operations that it only keeps internally, as a fallback, do not count."""
    registered = _REGISTERED.findall(text)
    bodies = [body for variable, body in pattern.findall(text) if variable in registered]
    return [name for body in bodies for name in key.findall(body)]


def _modules(sources: Sequence[Path]) -> dict[str, str]:
    """Stem of a C file to the module that it is part of, where that has another name (``NAME-y``, ``NAME-objs``)."""
    text = "".join(path.read_text(errors="replace") for path in sources if path.name in _KBUILD)
    parts = re.findall(r"^([\w-]+?)-(?:y|objs)\s*[:+]?=(.*)$", text.replace("\\\n", " "), re.MULTILINE)
    return {
        part: module
        for module, files in parts
        if module != "obj"
        for part in re.findall(r"([\w-]+)\.o\b", files)
    }


def _added_files(patch: str) -> list[tuple[str, str]]:
    """Stem and added lines of each C file of a patch."""
    out = []
    for part in re.split(r"^\+\+\+ ", patch, flags=re.MULTILINE)[1:]:
        path, _, rest = part.partition("\n")
        name = Path(path.split("\t")[0].strip())
        if name.suffix == ".c":
            added = [line[1:] for line in rest.split("\n") if line[:1] in "+ " and line]
            out.append((name.stem, "\n".join(added)))
    return out


def place(codes: Sequence[KernelCode], tree: Path) -> None:
    """Put C files into the kernel's tree; only files that changed are written, so the rest is not compiled again.

    Raises
    ------
    ParameterError
        Two folders have the same name, or the kernel already has an algorithm of that name.
    """
    names = [code.name for code in codes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ParameterError(f"--with: two folders are named {twice}; rename one")
    for code in codes:
        _check_names(code, tree)
    root = tree / PLACE
    root.mkdir(exist_ok=True)
    with_sources = [code for code in codes if code.sources]
    for left in root.iterdir():
        if left.is_dir() and left.name not in {code.name for code in with_sources}:
            shutil.rmtree(left)
    _write(root / "Makefile", "".join(f"obj-y += {code.name}/\n" for code in with_sources))
    for code in with_sources:
        folder = root / code.name
        folder.mkdir(exist_ok=True)
        given = next((path for name in _KBUILD for path in code.sources if path.name == name), None)
        each = "".join(f"obj-y += {path.stem}.o\n" for path in code.sources if path.suffix == ".c")
        _write(folder / "Makefile", _OBEY if given else each)
        wanted = {path.name: path for path in code.sources if path.name not in _KBUILD}
        if given:
            wanted[_OWN] = given
        for left in folder.iterdir():
            if left.suffix in _SOURCES and left.name not in wanted:
                left.unlink()
        for name, path in wanted.items():
            _write(folder / name, path.read_text(errors="surrogateescape"))
    parent = tree / PLACE.parent / "Makefile"
    line = f"obj-y += {PLACE.name}/\n"
    text = parent.read_text(encoding="utf-8")
    if line not in text:
        parent.write_text(f"{text}\n{line}", encoding="utf-8")


def _check_names(code: KernelCode, tree: Path) -> None:
    """Of two algorithms with one name, the second to register fails at boot, silently."""
    for names, pattern, key, files, what in (
        (code.qdiscs, _QDISC, _ID, "net/sched/sch_*.c", "queue discipline"),
        (code.ccas, _CCA, _NAME, "net/ipv4/tcp_*.c", "congestion control"),
    ):
        for path in sorted(tree.glob(files)):
            if path.stem in {about["module"] for about in names.values()}:
                continue  # what a patch of this folder made of it
            text = path.read_text(errors="replace")
            for name in _names(text, pattern, key):
                if name in names:
                    raise ParameterError(
                        f"--with: {code.folder}: this kernel already has a {what} {name!r} ({path.name}); give "
                        "yours another name"
                    )


def _write(path: Path, text: str) -> None:
    data = text.encode(errors="surrogateescape")
    if not path.is_file() or path.read_bytes() != data:
        path.write_bytes(data)
