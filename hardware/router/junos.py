"""Rules on a Junos router, over NETCONF: ``python -m hardware.router.junos RULES.set --host ROUTER``.

Takes the lines that :class:`cctoolkit.separation.router.Router` says (``set …``, ``delete …``). Nothing is changed
without ``--apply``. With it everything happens on a locked candidate, in Junos' own order: load, compare, commit check,
a commit that the device takes back by itself unless it is confirmed, and the confirmation. Whatever goes wrong, the
device has its old configuration, at the latest when the time for the confirmation is over.

The password, if there is one, comes from ``$JUNOS_PASSWORD``; keys from the ssh agent, ``~/.ssh`` or ``--key``. There
is no option for it, as a command line is seen by everybody on the machine.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import typer

from cctoolkit.errors import CCToolkitError, ParameterError

from ..common.command import run_app

__all__ = ["Applied", "JunosError", "JunosGoneError", "JunosLockedError", "JunosRouter"]

log = logging.getLogger(__name__)

PORT = 830
_COMMENT = "cctoolkit: flow separation"


class JunosError(CCToolkitError):
    """The router refused something, or there is no talking to it."""


class JunosGoneError(JunosError):
    """The router does not answer (any more)."""


class JunosLockedError(JunosError):
    """Somebody else is at the router's configuration."""


@dataclass(frozen=True)
class Applied:
    """What became of some lines.

    Attributes
    ----------
    lines : int
    diff : str
        The device's own ``show | compare``; empty where it has everything already.
    warnings : tuple of str
        What the device said besides, such as that there was nothing to delete.
    committed : bool
    """

    lines: int
    diff: str
    warnings: tuple[str, ...]
    committed: bool


class JunosRouter:
    """A Junos router's candidate configuration. A context manager, and a controller's function for what it says.

    Parameters
    ----------
    host : str
    port : int
    user : str, optional
        Default: ``$JUNOS_USER``, else who runs this.
    key : path, optional
        A private key besides those of the agent and in ``~/.ssh``. ``$JUNOS_PASSWORD`` opens it, if it must be opened.
    known_hosts : path, optional
        Where the router's host key is, instead of ``~/.ssh/known_hosts``.
    check_host_key : bool
        False: talk to whoever answers.
    confirm_minutes : int
        After so long the device takes a commit back that was not confirmed; Junos counts whole minutes.
    timeout_s : float
        For each answer; a commit may take a minute.

    Raises
    ------
    JunosGoneError
        Nobody answers.
    JunosError
        No ssh server with NETCONF, an unknown host key, or credentials that it refuses.
    """

    def __init__(
        self,
        host: str,
        port: int = PORT,
        *,
        user: str | None = None,
        key: str | Path | None = None,
        known_hosts: str | Path | None = None,
        check_host_key: bool = True,
        confirm_minutes: int = 2,
        timeout_s: float = 120.0,
    ) -> None:
        if confirm_minutes < 1:
            raise ParameterError(f"confirm_minutes: {confirm_minutes} is not 1 or more")
        self._nc = _import_ncclient()
        self.host, self.port = host, port
        self.user = user or os.environ.get("JUNOS_USER") or getpass.getuser()
        self.key, self.known_hosts, self.check_host_key = key, known_hosts, check_host_key
        self.confirm_minutes, self.timeout_s = confirm_minutes, timeout_s
        self._where = f"{host}:{port}"
        self._manager: Any = None
        self._waiting: list[str] = []
        #: A commit was begun and neither its confirmation nor its end is known.
        self._in_doubt = False
        self._connect()

    # -- the connection ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            with contextlib.suppress(Exception):
                manager.close_session()

    def _connect(self) -> None:
        nc, where = self._nc, self._where
        options: dict[str, Any] = {}
        if not self.check_host_key:
            options["hostkey_verify"] = False
        elif self.known_hosts is not None:
            options["hostkey_b64"] = self._known_key(Path(self.known_hosts))
        try:
            self._manager = nc.manager.connect(
                host=self.host,
                port=self.port,
                username=self.user,
                password=os.environ.get("JUNOS_PASSWORD"),
                key_filename=None if self.key is None else str(self.key),
                timeout=min(self.timeout_s, 30.0),
                keepalive=15,
                device_params={"name": "junos"},
                manager_params={"timeout": self.timeout_s},
                # warnings are no errors, and which of several there are is looked at here
                errors_params={"raise_mode": nc.operations.RaiseMode.NONE},
                **options,
            )
        except nc.transport.AuthenticationError:
            raise JunosError(f"{where}: refuses the user {self.user} (keys, $JUNOS_PASSWORD)") from None
        except nc.transport.SSHUnknownHostError as err:
            raise JunosError(
                f"{where}: its host key is not the known one (it has {err.fingerprint}); see known_hosts"
            ) from None
        except (nc.NCClientError, nc.paramiko.SSHException, OSError, EOFError) as err:
            raise JunosGoneError(f"{where}: no NETCONF server answers ({_line(err)})") from None

    def _known_key(self, file: Path) -> str:
        keys = self._nc.paramiko.HostKeys(str(file))
        names = [f"[{self.host}]:{self.port}"] if self.port != 22 else []
        for name in (*names, self.host):
            for found in (keys.lookup(name) or {}).values():
                return str(found.get_base64())
        raise JunosError(f"{self._where}: its host key is not in {file}")

    def _ask(self, what: str, request: Callable[..., Any], **arguments: Any) -> tuple[Any, list[str]]:
        """The answer and its warnings; errors in it are raised."""
        if self._manager is None:
            raise JunosGoneError(f"{self._where}: not connected")
        nc = self._nc
        try:
            answer = request(**arguments)
        except (nc.NCClientError, nc.paramiko.SSHException, OSError, EOFError) as err:
            # half an answer may come later; nothing can be asked after it
            with contextlib.suppress(Exception):
                self._manager._session.close()
            self._manager = None
            raise JunosGoneError(f"{self._where}: {what}: the connection ended ({_line(err)})") from None
        errors: list[str] = []
        warnings: list[str] = []
        for found in answer.xpath("//rpc-error"):
            text = _error_text(found)
            (warnings if found.findtext("error-severity", "error").strip() == "warning" else errors).append(
                text
            )
        if errors:
            raise JunosError(f"{self._where}: {what}: {'; '.join(errors)}")
        return answer, warnings

    # -- the configuration ---------------------------------------------------------------------------------------------

    def apply(self, lines: str | Iterable[str]) -> Applied:
        """Load, check, commit and confirm.

        Parameters
        ----------
        lines : str or iterable of str
            ``set …`` and ``delete …``; no lines are no error.

        Raises
        ------
        ParameterError
            A line that is neither.
        JunosError
            The router refused; it has its old configuration.
        JunosGoneError
            The connection ended. If that was between the commit and its confirmation, the message says so.
        """
        wanted = _checked(lines)
        if not wanted:
            return Applied(0, "", (), False)
        with self._candidate() as manager:
            warnings = self._load(wanted)
            diff = self._compare()
            commit = bool(diff) or self._in_doubt
            if commit:
                warnings += self._ask("commit check", manager.commit, check=True)[1]
                self._commit(manager)
        log.info("%s: %d lines, %s", self._where, len(wanted), "committed" if commit else "nothing new")
        return Applied(len(wanted), diff, tuple(warnings), commit)

    def __call__(self, lines: str | Iterable[str]) -> Applied | None:
        """As :meth:`apply`, for a controller that goes on, for it says only what is new.

        While the router is away or somebody else has its configuration, one line is logged, None returned, and the
        lines wait for the next call. Said twice they mean the same. A refusal is raised.
        """
        self._waiting += _checked(lines)
        wanted = list(self._waiting)
        try:
            done = self.apply(wanted)
        except (JunosGoneError, JunosLockedError) as err:
            log.warning("%s; %d lines wait", err, len(wanted))
            return None
        except JunosError:
            self._waiting.clear()
            raise
        self._waiting.clear()
        return done

    def compare(self, lines: str | Iterable[str]) -> Applied:
        """What the device would change, and whether its commit check passes; nothing is changed."""
        wanted = _checked(lines)
        with self._candidate() as manager:
            warnings = self._load(wanted) if wanted else []
            diff = self._compare()
            if diff:
                warnings += self._ask("commit check", manager.commit, check=True)[1]
        return Applied(len(wanted), diff, tuple(warnings), False)

    @contextlib.contextmanager
    def _candidate(self) -> Iterator[Any]:
        """The candidate for us alone; afterwards nothing is left in it and it is for all again, whatever happened."""
        if self._manager is None or not self._manager.connected:
            self.close()
            self._connect()
            self._lock()
        else:
            try:
                self._lock()
            except JunosGoneError:  # it ended while nobody asked anything
                self._connect()
                self._lock()
        manager = self._manager
        try:
            yield manager
        finally:
            # a session that ended has neither lock nor candidate any more; what went wrong is told by its own error
            with contextlib.suppress(JunosGoneError):
                self._release("discard", manager.discard_changes)
                self._release("unlock", manager.unlock, target="candidate")

    def _lock(self) -> None:
        try:
            self._ask("lock", self._manager.lock, target="candidate")
        except JunosGoneError:
            raise
        except JunosError as err:
            raise JunosLockedError(str(err)) from None

    def _release(self, what: str, request: Callable[..., Any], **arguments: Any) -> None:
        try:
            self._ask(what, request, **arguments)
        except JunosGoneError:
            raise
        except JunosError as err:
            log.warning("%s", err)

    def _load(self, lines: list[str]) -> list[str]:
        try:
            _, warnings = self._ask(
                "load", self._manager.load_configuration, action="set", config="\n".join(lines) + "\n"
            )
        except JunosGoneError:
            raise
        except JunosError as err:
            raise JunosError(f"{err}{self._culprit(lines)}") from None
        return warnings

    def _culprit(self, lines: list[str]) -> str:
        """Which line it was: the shortest beginning that the device does not take ends in it."""
        low, high = 0, len(lines)  # so many lines are taken; so many are not
        with contextlib.suppress(JunosError):
            while high - low > 1:
                middle = (low + high) // 2
                self._ask("discard", self._manager.discard_changes)
                try:
                    self._ask(
                        "load",
                        self._manager.load_configuration,
                        action="set",
                        config="\n".join(lines[:middle]),
                    )
                    low = middle
                except JunosGoneError:
                    raise
                except JunosError:
                    high = middle
            return f" (line {high}: {lines[high - 1]})"
        return ""

    def _compare(self) -> str:
        answer, _ = self._ask("compare", self._manager.compare_configuration)
        return "\n".join(x.text or "" for x in answer.xpath("//configuration-output")).strip("\n")

    def _commit(self, manager: Any) -> None:
        within = f"the device takes it back within {self.confirm_minutes} min"
        try:
            self._in_doubt = True
            self._ask(
                "commit", manager.commit, confirmed=True, timeout=60 * self.confirm_minutes, comment=_COMMENT
            )
        except JunosGoneError as err:
            raise JunosGoneError(f"{err}; if it was committed, {within}") from None
        except JunosError:
            self._in_doubt = False
            raise
        try:
            self._ask("confirm", manager.commit, comment=_COMMENT)
            self._in_doubt = False
        except JunosGoneError as err:
            raise JunosGoneError(f"{err}; {within}, unless the confirmation had arrived") from None
        except BaseException as err:
            self._in_doubt = not self._took_back(manager)
            if self._in_doubt and isinstance(err, JunosError):
                raise JunosError(f"{err}; {within}") from None
            raise

    def _took_back(self, manager: Any) -> bool:
        """The one before, at once; True if the device has it."""
        try:
            self._ask("rollback", manager.rollback, rollback=1)
            self._ask("commit", manager.commit, comment=f"{_COMMENT}, taken back")
        except JunosError:
            return False
        return True


def _checked(lines: str | Iterable[str]) -> list[str]:
    """The lines without comments and empty ones; only ``set`` and ``delete`` are let through."""
    wanted = []
    for number, line in enumerate(lines.splitlines() if isinstance(lines, str) else lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if text.split()[0] not in ("set", "delete") or len(text.split()) < 2 or not text.isprintable():
            raise ParameterError(f"line {number}: {text!r} is neither «set …» nor «delete …»")
        wanted.append(text)
    return wanted


def _error_text(error: Any) -> str:
    """An ``rpc-error`` in one line: where, what, and the word that the device did not understand."""
    path, message, word = (
        " ".join((error.findtext(name) or "").split())
        for name in ("error-path", "error-message", "error-info/bad-element")
    )
    message = message or " ".join((error.findtext("error-tag") or "refused").split())
    if word and word not in message:
        message = f"{message}: {word}"
    return f"{path}: {message}" if path else message


def _line(err: BaseException) -> str:
    text = getattr(err, "strerror", None) or str(err) or type(err).__name__
    return " ".join(text.split())[:200]


def _import_ncclient() -> Any:
    try:
        import ncclient
        import ncclient.manager
        import ncclient.operations
        import ncclient.transport
        import paramiko
    except ImportError:
        raise JunosError("NETCONF needs the package ncclient: pip install ncclient") from None
    for name in ("ncclient", "paramiko"):  # what they have to tell is in their errors
        logging.getLogger(name).setLevel(logging.CRITICAL)
    ncclient.paramiko = paramiko
    return ncclient


# ---- the command line

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(no_args_is_help=True)
def junos(
    rules: Annotated[
        str, typer.Argument(metavar="RULES.set", help="Lines for `load set`; - for standard input.")
    ],
    host: Annotated[str | None, typer.Option(metavar="HOST", help="The router.")] = None,
    port: Annotated[int, typer.Option(help="Of its NETCONF server.", min=1, max=65535)] = PORT,
    user: Annotated[str | None, typer.Option(help="Default: $JUNOS_USER, else you.")] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A private key; default: the agent's, ~/.ssh.")
    ] = None,
    known_hosts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: ~/.ssh/known_hosts.")
    ] = None,
    check_host_key: Annotated[
        bool, typer.Option("--check-host-key/--no-check-host-key", help="Whether to know whom one talks to.")
    ] = True,
    compare: Annotated[
        bool, typer.Option("--compare", help="Ask the router what would change, and change nothing.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Commit.")] = False,
    confirm_minutes: Annotated[
        int,
        typer.Option(
            help="So long an unconfirmed commit lives, should the connection end.", min=1, max=65535
        ),
    ] = 2,
) -> None:
    """Put rules on a Junos router, or say what would be put there.

    Without --compare and --apply the lines are checked and printed. A password is taken from $JUNOS_PASSWORD.
    """
    if compare and apply:
        raise typer.BadParameter("--compare changes nothing and --apply does: one of them")
    if (compare or apply) and host is None:
        raise typer.BadParameter("say which router: --host HOST")
    text = sys.stdin.read() if rules == "-" else Path(rules).read_text(encoding="utf-8")
    lines = _checked(text)
    if not (compare or apply):
        for line in lines:
            print(line)
        print(
            f"{len(lines)} lines; nothing was changed (--compare asks the router, --apply commits)",
            file=sys.stderr,
        )
        return
    assert host is not None
    with JunosRouter(
        host,
        port,
        user=user,
        key=key,
        known_hosts=known_hosts,
        check_host_key=check_host_key,
        confirm_minutes=confirm_minutes,
    ) as router:
        done = router.apply(lines) if apply else router.compare(lines)
    for warning in done.warnings:
        print(f"junos: warning: {warning}", file=sys.stderr)
    if done.diff:
        print(done.diff)
    state = "committed" if done.committed else "nothing to change" if not done.diff else "nothing was changed"
    print(f"{host}: {done.lines} lines, {state}", file=sys.stderr)


if __name__ == "__main__":
    run_app(app, "junos", "hardware.router.junos")
