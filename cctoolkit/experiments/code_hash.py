"""A hash of the code that a result depends on.

It covers what the code does, not where it is or how it is written: docstrings, comments, imports, type hints, names of
local variables, the texts of exceptions and notes, and the division into modules do not change it. Moving a function
does not make a result outdated, nor does changing one that the result does not use; changing one that it uses does. A
method counts as used if any code that counts has its name, as an attribute or a text. The methods of a class that
derives from a library's all count, since the library may call them.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["NOT_SIMULATED", "ROOT", "changes", "code_hash"]

#: The folder that holds the package ``cctoolkit``.
ROOT = Path(__file__).parents[2]
#: What shows results, or carries them, and does not decide them: packages and modules, and modules of any experiment.
_SHOWN_BY = ("cctoolkit.cli", "cctoolkit.plot", "cctoolkit.report")
_CARRIED_BY = (
    *(
        f"cctoolkit._support.{name}"
        for name in (
            "atomic", "cache_folder", "children", "csv", "documents", "fingerprint", "kernels", "layout", "locks",
            "memory", "parquet", "pool", "state", "terminal", "threads", "version", "waiting", "words",
        )
    ),
    "cctoolkit.errors",
    "cctoolkit.experiments.code_hash",
    "cctoolkit.analysis.tap_clocks",  # whether two captures can be compared
    "cctoolkit.analysis.tap_comparison",
    "cctoolkit.scenario.files",
    "cctoolkit.scenario.link_trace",
    "cctoolkit.schema",  # which columns there are; what fills them counts
)  # fmt: skip
_LAST_STEPS = ("figures", "conclusions", "statements", "page", "book")
#: What only runs on real Linux use, and captures.
NOT_SIMULATED = (
    "cctoolkit._support.algorithm.kernel_module", "cctoolkit.aqm.linux_only", "cctoolkit.capture",
    "cctoolkit.cca.linux_only", "cctoolkit.testbed",
)  # fmt: skip
#: Modules whose methods load what they call at first use: a measurement that calls one imports the same by itself.
FACADES = ("cctoolkit.capture.model",)
#: Packages whose classes register themselves: those count whose names occur in a text, as in ``aqm="codel"``.
REGISTRIES = ("cctoolkit.aqm", "cctoolkit.cca")
#: Functions whose calls only inform people.
_NOTING = {"note", "say", "show", "warn"}
#: Sources in other languages that lie beside modules.
_OTHER_SOURCES = (".c", ".h", ".patch", ".sh")

#: Statements with statements inside that run when the module is imported.
_COMPOUND = ast.If | ast.For | ast.While | ast.With | ast.Try | ast.ExceptHandler

#: Where a name comes from: a module, and the name there; None for the module itself.
Source = tuple[str, str | None]


def code_hash(
    modules: Iterable[str], files: Iterable[str] = (), without: tuple[str, ...] = (), root: Path = ROOT
) -> str:
    """A hash of the source code of modules and of everything in this package that they use.

    Parameters
    ----------
    modules : iterable of str
        Names such as ``"cctoolkit.experiments.codel.tables"``. All of their statements count; in the modules that they
        import, those that their names refer to.
    files : iterable of str
        Patterns of other files that count, such as ``"hardware/ebpf/*.c"``.
    without : tuple of str
        Modules and packages that do not count although names refer to them.
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
    parts = {_digest(path.read_bytes()) for pattern in files for path in root.glob(pattern) if path.is_file()}
    for name, numbers in _used(modules, without, root).items():
        module = _module(name, root)
        parts |= {module.statements[number].digest for number in numbers}
        for suffix in _OTHER_SOURCES:
            parts |= {_digest(other.read_bytes()) for other in module.path.parent.glob(f"*{suffix}")}
    return _digest("\n".join(sorted(parts)).encode())


def changes(modules: Iterable[str], without: tuple[str, ...], before: Path, after: Path = ROOT) -> list[str]:
    """The definitions that make the hashes of two checkouts differ.

    Parameters
    ----------
    modules, without
        As for :func:`code_hash`.
    before, after : Path
        The checkouts.

    Returns
    -------
    list of str
        Names such as ``"cctoolkit.sim.engine.run"``, sorted; one that has only moved is left out. ``*`` stands for
        statements that define nothing.
    """
    old, new = (_definitions(modules, without, root) for root in (before, after))
    both = set(old.values()) & set(new.values())
    return sorted({name for found in (old, new) for (name, _), digest in found.items() if digest not in both})


def _definitions(modules: Iterable[str], without: tuple[str, ...], root: Path) -> dict[tuple[str, int], str]:
    """The digest of each statement behind modules, by what it defines, and its number in the module."""
    found = {}
    for name, numbers in _used(modules, without, root).items():
        module = _module(name, root)
        defined = {number: part for part, places in module.defined.items() for number in places}
        for number in numbers:
            found[f"{name}.{defined.get(number, '*')}", number] = module.statements[number].digest
    return found


def _used(modules: Iterable[str], without: tuple[str, ...], root: Path) -> dict[str, set[int]]:
    """By module, the numbers of the statements that the modules need, their own included.

    A statement needs the definitions of the names in it; a module that is used at all needs its statements that define
    nothing.
    """
    used: dict[str, set[int]] = {}
    waiting: set[Source] = {(name, None) for name in modules}
    for name, _ in waiting:
        if _file(name, root) is None:
            raise FileNotFoundError(f"{root / name.replace('.', '/')}.py")
    seen: set[Source] = set()
    words: set[str] = set()  # texts and attributes: with them, code may refer to classes and methods by name
    while (
        waiting
        or (waiting := _registered(words, without, root) - seen)
        or (waiting := _methods(used, words, root) - seen)
    ):
        source = waiting.pop()
        name, wanted = source
        if source in seen:
            continue
        seen.add(source)
        if _left_out(name, without) or _file(name, root) is None:
            continue
        module = _module(name, root)
        if wanted is not None and wanted not in module.defined:
            waiting |= {_elsewhere(module, name, wanted, root)}
            continue
        numbers = (
            set(range(len(module.statements))) if wanted is None else module.defined[wanted] | module.always
        )
        new = numbers - used.setdefault(name, set())
        used[name] |= new
        for number in new:
            waiting |= module.statements[number].names
            words |= module.statements[number].words
    return used


def _methods(used: dict[str, set[int]], words: set[str], root: Path) -> set[Source]:
    """The methods of classes in use that code refers to, or that Python calls."""
    found: set[Source] = set()
    for name, numbers in used.items():
        module = _module(name, root)
        for method in module.methods:
            of_class, _, called = method.partition(".")
            if module.defined[of_class] <= numbers and (called in words or called.startswith("__")):
                found.add((name, method))
    return found


def _registered(words: set[str], without: tuple[str, ...], root: Path) -> set[Source]:
    """The classes of registries whose names are among some words."""
    found: set[Source] = set()
    for package in REGISTRIES:
        if not _left_out(package, without) and _file(package, root):
            for source in _module(package, root).imports.values():
                if _file(source[0], root) and _registered_name(source, root) in words:
                    found.add(source)
    return found


@functools.cache
def _registered_name(source: Source, root: Path) -> str | None:
    """The name of a class in its registry: its attribute ``name``, or its own in lower case; None: not a class."""
    tree = ast.parse(_module(source[0], root).path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == source[1]:
            for line in node.body:
                if isinstance(line, ast.Assign | ast.AnnAssign) and line.value and "name" in _defined(line):
                    return str(ast.literal_eval(line.value))
            return node.name.lower()
    return None


def _left_out(name: str, without: tuple[str, ...]) -> bool:
    """Whether a module does not count."""
    return name.startswith(_SHOWN_BY + _CARRIED_BY + without) or name.rpartition(".")[2] in _LAST_STEPS


def _elsewhere(module: _Module, name: str, wanted: str, root: Path) -> Source:
    """The source of a module's name that none of its statements defines."""
    if wanted in module.imports:
        return module.imports[wanted]
    if wanted in module.lazy:
        return module.lazy[wanted]
    if _file(f"{name}.{wanted}", root):
        return f"{name}.{wanted}", None
    return name, None  # some other way, so all of it counts


@dataclass(frozen=True)
class _Statement:
    digest: str
    names: frozenset[Source]
    words: frozenset[str]


@dataclass(frozen=True)
class _Module:
    """A module's statements, and where its names come from.

    Parameters
    ----------
    path : Path
        Its file.
    imports : dict
        Names that it imports, and where from.
    lazy : dict
        Names of a package that its stub lists and that load at first use, and where from.
    statements : list of _Statement
        Without docstrings and imports.
    defined : dict
        Names that statements define, and the numbers of these statements.
    always : set of int
        Numbers of the statements that run whichever name is used.
    methods : set of str
        Those of the names in `defined` that are methods, as ``"Class.method"``, where they count by themselves.
    """

    path: Path
    imports: dict[str, Source]
    lazy: dict[str, Source]
    statements: list[_Statement] = field(default_factory=list)
    defined: dict[str, set[int]] = field(default_factory=dict)
    always: set[int] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)


@functools.cache
def _module(name: str, root: Path) -> _Module:
    path = _file(name, root)
    assert path is not None
    is_package = path.name == "__init__.py"
    package = name if is_package else name.rpartition(".")[0]
    tree = _WithoutTyping().visit(ast.parse(path.read_text(encoding="utf-8")))
    stub = path.with_suffix(".pyi")
    lazy = ast.parse(stub.read_text(encoding="utf-8")).body if is_package and stub.is_file() else []
    module = _Module(path, _imports(_at_import(tree.body), package), _imports(lazy, package))
    local = [{} if name in FACADES else _imports(ast.walk(node), package) for node in tree.body]
    bare = [(_Bare().visit(node), inside) for node, inside in zip(tree.body, local, strict=True)]
    whole = [
        (node, inside) for node, inside in bare if not (node is None or _is_docstring(node) or _is_main(node))
    ]
    classes = {node.name: node for node, _ in whole if isinstance(node, ast.ClassDef)}
    statements = [
        (part, inside, of_class)
        for node, inside in whole
        for part, of_class in _parts_of(node, name, classes, module.imports, root)
    ]
    for number, (node, _, of_class) in enumerate(statements):
        defines = set(_defined(node))
        if of_class:
            defines = {f"{of_class}.{defined}" for defined in defines}
            module.methods.update(defines)
        for defined in defines:
            module.defined.setdefault(defined, set()).add(number)
        if not defines or isinstance(node, _COMPOUND):
            module.always.add(number)
    for node, inside, _ in statements:
        names = _Names(name, module.imports | inside, module.defined, root)
        names.visit(node)
        module.statements.append(
            _Statement(_digest(ast.dump(node).encode()), frozenset(names.found), frozenset(_words(node)))
        )
    return module


def _words(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.Attribute):
            yield part.attr


def _parts_of(
    node: ast.stmt, module: str, classes: dict[str, ast.ClassDef], imports: dict[str, Source], root: Path
) -> Iterator[tuple[ast.stmt, str]]:
    """A statement; or a class without methods, then the methods, each with the name of the class."""
    registered = module.startswith(REGISTRIES)  # its methods are called by whatever name they have
    if not isinstance(node, ast.ClassDef) or registered or not _is_our_own(node, classes, imports, root):
        yield node, ""
        return
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    rest = [part for part in node.body if part not in methods]
    yield ast.ClassDef(**{**dict(ast.iter_fields(node)), "body": rest}), ""
    for method in methods:
        yield method, node.name


def _is_our_own(
    node: ast.ClassDef, classes: dict[str, ast.ClassDef], imports: dict[str, Source], root: Path
) -> bool:
    """Whether no class of a library or a registry is among the bases."""
    for base in node.bases:
        if not isinstance(base, ast.Name):
            return False
        if base.id in classes:
            if not _is_our_own(classes[base.id], classes, imports, root):
                return False
        elif not _is_our_own_there(imports.get(base.id), root):
            return False
    return True


@functools.cache
def _is_our_own_there(source: Source | None, root: Path) -> bool:
    """:func:`_is_our_own` of a class that is imported."""
    if source is None or source[1] is None or source[0].startswith(REGISTRIES):
        return False
    path = _file(source[0], root)
    if path is None:
        return False
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = source[0] if path.name == "__init__.py" else source[0].rpartition(".")[0]
    imports = _imports(_at_import(tree.body), package)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if source[1] in classes:
        return _is_our_own(classes[source[1]], classes, imports, root)
    return _is_our_own_there(imports.get(source[1]), root)


def _file(name: str, root: Path) -> Path | None:
    base = root.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _at_import(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements that run when a module is imported, those inside ``try`` and ``if`` included."""
    for node in nodes:
        yield node
        if isinstance(node, _COMPOUND):
            yield from _at_import(ast.iter_child_nodes(node))


def _imports(nodes: Iterable[ast.AST], package: str) -> dict[str, Source]:
    """The names that import statements give, and where each comes from."""
    found: dict[str, Source] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.split(".")[0]
                found[alias.asname or whole] = (whole, None)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")
            above = above[: len(above) - node.level + 1] if node.level else []
            base = ".".join([*above, *(node.module.split(".") if node.module else [])])
            for alias in node.names:
                found[alias.asname or alias.name] = (base, alias.name)
    return found


def _defined(node: ast.AST) -> Iterator[str]:
    """The names that a statement of a module defines."""
    for part in _at_import([node]):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield part.name
        elif isinstance(part, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            for target in targets:
                yield from (
                    name.id for name in ast.walk(target) if isinstance(name, ast.Name) and _stored(name)
                )


def _stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


class _Names(ast.NodeVisitor):
    """Finds where the names in a statement come from; names neither imported nor defined in the module are ignored.

    Parameters
    ----------
    name : str
        The module.
    imports : dict
        Names that are imported there, and where from.
    own : collection of str
        Names that the module defines.
    root : Path
        The folder that modules start from.
    """

    def __init__(self, name: str, imports: dict[str, Source], own: Collection[str], root: Path) -> None:
        self.name, self.imports, self.own, self.root = name, imports, own, root
        self.found: set[Source] = set()

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.imports:
            self.found.add(self.imports[node.id])
        elif node.id in self.own:
            self.found.add((self.name, node.id))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        module = self._as_module(node.value)
        if module is None:
            self.visit(node.value)
        else:
            self.found.add((module, node.attr))

    def _as_module(self, node: ast.AST) -> str | None:
        """The module of this package that an expression such as ``cct.identify`` denotes."""
        if isinstance(node, ast.Name) and node.id in self.imports:
            base, wanted = self.imports[node.id]
        elif isinstance(node, ast.Attribute):
            base, wanted = self._as_module(node.value) or "", node.attr
        else:
            return None
        if _file(base, self.root) is None:
            return None
        if wanted is None:
            return base
        module = f"{base}.{wanted}"
        return module if _file(module, self.root) and wanted not in _module(base, self.root).defined else None


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _WithoutTyping(ast.NodeTransformer):
    """Removes ``if TYPE_CHECKING:``."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        return self.generic_visit(node)


class _Bare(_WithoutTyping):
    """Also removes docstrings, imports, ``__all__``, type hints of functions, and what only informs people."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        for part in ast.walk(node):
            if isinstance(part, ast.arg):
                part.annotation = None
        hints = _LocalHints()
        node.body = [line for line in map(hints.visit, node.body) if line is not None]
        return _renamed(self.generic_visit(node))

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        called = node.value.func if isinstance(node.value, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
        return None if name in _NOTING else self.generic_visit(node)

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


class _LocalHints(ast.NodeTransformer):
    """Removes the type hints of local variables; those of a class say what its fields are, and stay."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return None if node.value is None else ast.Assign([node.target], node.value)


def _renamed(function: ast.AST) -> ast.AST:
    """Replace the names of local variables by numbers, in the order in which they occur.

    Parameters keep their names, which callers use.
    """
    fixed: set[str] = set()
    stored: list[str] = []
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            fixed.add(node.arg)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            fixed |= set(node.names)
        elif isinstance(node, ast.ClassDef):
            fixed |= {name for line in node.body for name in _defined(line)}
        elif isinstance(node, ast.Name) and _stored(node):
            stored.append(node.id)
    numbers = {
        name: f"local {i}" for i, name in enumerate(dict.fromkeys(n for n in stored if n not in fixed))
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = numbers.get(node.id, node.id)
    return function
