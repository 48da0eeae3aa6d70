"""A hash of the code that a result depends on.

It covers what the code does and not where it lies or how it words errors: docstrings, comments, imports, the texts of
exceptions and the division into modules leave it as it is. Moving a function does not make a result look outdated,
changing it does.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["ROOT", "code_hash", "modules_behind"]

#: The folder that holds the package ``cctoolkit``.
ROOT = Path(__file__).parents[2]
#: What shows results and does not decide them. Imports of these are not followed.
PRESENTATION = ("cctoolkit.cli", "cctoolkit.plot", "cctoolkit.report")
#: Modules whose methods load what they call at first use: a measurement that calls one imports the same by itself.
FACADES = ("cctoolkit.capture.model",)
#: Sources in other languages that lie beside modules.
_OTHER_SOURCES = (".c", ".h", ".patch", ".sh")


def code_hash(modules: Iterable[str], files: Iterable[str] = (), root: Path = ROOT) -> str:
    """A hash of the source code of modules and of everything of ours that they import.

    Parameters
    ----------
    modules : iterable of str
        Names such as ``"cctoolkit.experiments.codel.tables"``.
    files : iterable of str
        Patterns of other files that count, such as ``"hardware/ebpf/*.c"``.
    root : Path
        The folder that names and patterns start from.

    Returns
    -------
    str
        Hexadecimal digits of a SHA-256.

    Raises
    ------
    FileNotFoundError
        There is no such module.
    """
    parts = {_digest(path.read_bytes()) for pattern in files for path in root.glob(pattern)}
    for path in modules_behind(modules, root).values():
        parts |= set(_statements(path))
        for suffix in _OTHER_SOURCES:
            parts |= {_digest(other.read_bytes()) for other in path.parent.glob(f"*{suffix}")}
    return _digest("\n".join(sorted(parts)).encode())


def modules_behind(modules: Iterable[str], root: Path = ROOT) -> dict[str, Path]:
    """The modules and everything of ours that they import, also inside functions, with their files.

    Imports for type checking only, and of what shows results (:data:`PRESENTATION`), are left out.
    """
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found or name.startswith(PRESENTATION):
            continue
        path = _file(name, root)
        if path is None:
            raise FileNotFoundError(f"{root / name.replace('.', '/')}.py")
        found[name] = path
        waiting += _imports(name, path, root)
    return found


def _file(name: str, root: Path) -> Path | None:
    base = root.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(name: str, path: Path, root: Path) -> Iterator[str]:
    """Modules of ours that a module imports."""
    for base, names in _imported(name, path):
        yield from _providers(base, names, root)


@functools.cache
def _imported(name: str, path: Path) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The modules and packages that a module imports, each with the names it takes from there."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    tree = _code(path)
    nodes = list(tree.body if name in FACADES else ast.walk(tree))
    attributes: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.setdefault(node.value.id, []).append(node.attr)
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                called = attributes.get(alias.asname or alias.name, ())
                found.append((alias.name, tuple(dict.fromkeys(called))))
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *(node.module.split(".") if node.module else [])])
            found.append((base, tuple(alias.name for alias in node.names)))
    return tuple(dict.fromkeys(found))


def _providers(base: str, names: Iterable[str], root: Path) -> Iterator[str]:
    """The modules that names of a module or package come from: a submodule, where a stub says, or the module itself."""
    path = _file(base, root)
    if path is None:
        return
    stub = path.with_suffix(".pyi")
    where = _stub(stub) if path.name == "__init__.py" and stub.is_file() else {}
    for name in names:
        if _file(f"{base}.{name}", root):
            yield f"{base}.{name}"
        elif name in where:
            yield f"{base}.{where[name]}"
        elif base != "cctoolkit":
            yield base


@functools.cache
def _stub(path: Path) -> dict[str, str]:
    """Names that a package loads lazily, and the submodules of its own they are in."""
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    return {
        alias.asname or alias.name: node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
        if node.module
    }


@functools.cache
def _code(path: Path) -> ast.Module:
    """A module's code, without what is for type checking only."""
    tree = _WithoutTyping().visit(ast.parse(path.read_text(encoding="utf-8")))
    assert isinstance(tree, ast.Module)
    return tree


@functools.cache
def _statements(path: Path) -> tuple[str, ...]:
    """Hashes of a module's statements, without docstrings and imports."""
    bare = _Bare().visit(ast.parse(path.read_text(encoding="utf-8")))
    return tuple(_digest(ast.dump(node).encode()) for node in bare.body)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _WithoutTyping(ast.NodeTransformer):
    """Takes out ``if TYPE_CHECKING:``."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        return self.generic_visit(node)


class _Bare(_WithoutTyping):
    """Takes out docstrings, imports, ``__all__`` and the arguments of exceptions, too."""

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return node

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            return None
        return self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and body:
            first = body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = body[1:]
        return super().generic_visit(node)
