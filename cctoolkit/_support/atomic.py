"""Atomic writes: a file or a folder appears whole or not at all, and errors name it, not its temporary place.

Until it is complete, it is in a hidden folder beside its target, named ``.NAME.XXXXXXXX.cct.tmp`` and locked by the
writing process. The lock ends with that process, however it ends, so the next process that writes to the same place
recognises what a killed one left there, and removes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import CCToolkitError, ParameterError
from .locks import try_lock
from .terminal import is_standard_output, printing

__all__ = [
    "SUFFIX", "check_target", "is_same_file", "replacing", "replacing_files", "replacing_folder", "replacing_set",
    "sweep",
]  # fmt: skip

#: Ending of hidden folders; nothing else has it, so what has it is ours to remove.
SUFFIX = ".cct.tmp"
#: Characters of the target's name in that of the hidden folder: for people, and names have a limit.
_NAMED = 40
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # pathlib makes one slash of two


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path with the same name; move the file there to `path` on success, remove it on any failure.

    A signal that raises (Ctrl-C) counts as a failure. A pipe or a device is written directly; standard output
    (``-``) gets the whole file on success. A file that is replaced keeps its permissions, and a symbolic link to it
    stays.

    Raises
    ------
    ParameterError
        `path` is a URL.
    OSError
        A write failed, or `path` is a folder; ``filename`` is `path`.
    """
    path = Path(path)
    if is_standard_output(path):
        with tempfile.TemporaryDirectory(suffix=SUFFIX) as inside:
            yield Path(inside, "stdout")
            with printing(), Path(inside, "stdout").open("rb") as file:
                sys.stdout.flush()
                shutil.copyfileobj(file, sys.stdout.buffer)
        return
    _check_file(path)
    if _is_special(path):
        with _named(lambda _: path):
            yield path
        return
    target = _followed(path)
    with _workspace(target.parent, target.name) as inside:
        yield inside / target.name
        with contextlib.suppress(FileNotFoundError):
            os.chmod(inside / target.name, stat.S_IMODE(target.stat().st_mode))
        os.replace(inside / target.name, target)


@contextlib.contextmanager
def replacing_files(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder; move its files to `folder` on success, all or, unless a move fails, none.

    Raises
    ------
    ParameterError, OSError
        As for :func:`replacing`.
    """
    folder = Path(folder)
    with _workspace(folder, "files") as inside:
        yield inside
        files = sorted(inside.iterdir())
        for file in files:
            _check_file(folder / file.name)
        for file in files:
            os.replace(file, folder / file.name)


@contextlib.contextmanager
def replacing_folder(
    path: str | os.PathLike[str], *, keep: Callable[[str], bool] | None = None
) -> Iterator[Path]:
    """Yield an empty temporary folder with the same name, which replaces `path` on success.

    On Linux, where the file system can exchange two names, `path` is at every moment the old folder or the new one.
    The new folder also gets what the old one holds under other names for which `keep` returns True. A symbolic link to
    the old folder stays. Beside the temporary folder is room for scratch files.

    Raises
    ------
    ParameterError, OSError
        As for :func:`replacing`.
    """
    path = Path(path)
    _check_local(path)
    path = _followed(path)
    with _workspace(path.parent, path.name) as inside:
        new = inside / path.name
        new.mkdir()
        yield new
        if keep is not None and path.exists():
            _link_others(path, new, keep)
        if not path.exists() or not _exchanged(new, path):
            if path.exists():
                path.rename(inside / f"{path.name}.old")
            new.rename(path)


@contextlib.contextmanager
def replacing_set(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder; move its files to `folder` on success, in one step, beside what else is there.

    The files are moved one by one, as by :func:`replacing_files`, into a folder that cannot be exchanged for another:
    the current one, a mount point, or one in a folder that is not writable.

    Raises
    ------
    ParameterError, OSError
        As for :func:`replacing`.
    """
    folder = Path(folder)
    fixed = folder.is_dir() and (
        folder.samefile(os.curdir) or folder.is_mount() or not os.access(folder.parent, os.W_OK)
    )
    with replacing_files(folder) if fixed else replacing_folder(folder, keep=lambda _: True) as inside:
        yield inside


def is_same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two names are those of one file that is there."""
    if is_standard_output(one) or is_standard_output(other):
        return False
    return os.path.isfile(one) and os.path.isfile(other) and os.path.samefile(one, other)


def check_target(
    path: str | os.PathLike[str] | None, *, folder: bool = False, or_standard_output: bool = False
) -> None:
    """Raise if no file (or folder) can be written to `path`, so that a command fails before hours of work.

    Raises
    ------
    ParameterError
        It is a URL, or ``-`` without `or_standard_output`.
    OSError
        It is a folder (or, for a folder, a file), or its parent is not writable; ``filename`` is `path`.
    """
    if path is None:
        return
    if or_standard_output and is_standard_output(path):
        return
    path = Path(path)
    if folder:
        _check_local(path)
        if path.exists() and not path.is_dir():
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    else:
        _check_file(path)
    if not _is_special(path):
        with _named(lambda _: path, always=True):
            above = next(folder for folder in path.absolute().parents if folder.exists())
            tempfile.TemporaryFile(dir=above).close()


def _check_local(path: Path) -> None:
    if is_standard_output(path):
        raise ParameterError("output: expected the name of a file or folder, not - (standard output)")
    if url := _URL.match(str(path)):
        raise ParameterError(
            f"output: {url[1]}://{str(path)[url.end() :]} is a URL: write to a local folder and copy it there"
        )


def _check_file(path: Path) -> None:
    _check_local(path)
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def _followed(path: Path) -> Path:
    """Where a symbolic link leads."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _link_others(old: Path, new: Path, keep: Callable[[str], bool]) -> None:
    """Put what a folder holds into another one as well, except for names that are there and unfinished writes."""
    for entry in old.iterdir():
        target = new / entry.name
        if target.exists() or entry.name.endswith(SUFFIX) or not keep(entry.name):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, target, symlinks=True, copy_function=_link)
        else:
            _link(entry, target)


def _link(file: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Make a second name for a file; a copy, if the file system has no hard links."""
    try:
        os.link(file, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(file, target, follow_symlinks=False)


def _is_special(path: Path) -> bool:
    """Whether it is a pipe or device, which is written into and not replaced."""
    return path.exists() and not (path.is_file() or path.is_dir())


def sweep(folder: str | os.PathLike[str], *, below: bool = False) -> None:
    """Remove what killed processes left in a folder, and with `below` in all folders in it.

    What belongs to a running process stays, and so does everything where the file system has no locks.
    """
    pattern = f".*{SUFFIX}"
    with contextlib.suppress(FileNotFoundError):  # somebody else may be sweeping
        for left in list(Path(folder).rglob(pattern) if below else Path(folder).glob(pattern)):
            lock = _lock(left)
            if lock is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)


#: A folder is swept once by each process, at its first write: one with very many files takes a while to list.
_sweep_once = functools.cache(sweep)


@contextlib.contextmanager
def _workspace(parent: Path, name: str) -> Iterator[Path]:
    """Make a hidden, locked folder in `parent` for the time of the block; errors name `parent`/`name` instead."""
    inside: Path | None = None
    lock: int | None = None

    def meant(file: Path) -> Path:
        below = file.relative_to(inside) if inside is not None and file.is_relative_to(inside) else None
        return parent / below if below is not None and below.parts else parent / name

    with _named(meant):
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):  # they name a file somewhere above
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(parent / name)) from None
        _sweep_once(parent.resolve())
        try:
            while lock is None:
                hidden = f".{name[:_NAMED]}."
                inside = Path(tempfile.mkdtemp(prefix=hidden, suffix=SUFFIX, dir=parent))
                lock = _lock(inside)
                if lock is None and inside.exists():  # not swept away meanwhile: there are no locks here
                    break
            assert inside is not None
            yield inside
        finally:
            if inside is not None:
                shutil.rmtree(inside, ignore_errors=True)
            if lock is not None:
                os.close(lock)


@contextlib.contextmanager
def _named(meant: Callable[[Path], Path], *, always: bool = False) -> Iterator[None]:
    """Make errors of the operating system name the file that was to be written.

    `meant` maps the name in the error to it. Errors that name a file elsewhere keep that name, unless `always`.
    """
    try:
        yield
    except BrokenPipeError:  # standard output: whoever reads it is gone
        raise
    except OSError as err:
        name = err.filename if isinstance(err.filename, str) else ""
        if name and SUFFIX not in name and not always:
            raise
        if err.errno is None:  # a library's own
            raise CCToolkitError(f"{meant(Path(name))}: {' '.join(str(err).split())}") from None
        # libraries put words, and the hidden name, around what the system says
        raise OSError(err.errno, os.strerror(err.errno), str(meant(Path(name)))) from None


def _lock(folder: Path) -> int | None:
    """Open and lock a folder; None if it is another process's, or gone, or there are no locks."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (AttributeError, OSError):  # the first on Windows
        return None
    with contextlib.suppress(OSError):  # it may have been removed between the two
        if try_lock(handle) and os.path.samestat(os.fstat(handle), os.stat(folder)):
            return handle
    os.close(handle)
    return None


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where that cannot be done."""
    at_here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):  # not Linux
        return False
    return rename(at_here, os.fsencode(one), at_here, os.fsencode(other), exchange) == 0
