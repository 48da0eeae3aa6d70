"""Apply rules to a Junos router over NETCONF: ``python -m hardware.router.junos RULES.set --host ROUTER``.

The rules are the lines that :class:`cctoolkit.separation.router.Router` renders (``set …``, ``delete …``).
Nothing changes without ``--apply``. With it, everything happens on a locked candidate, in Junos' own order:
load, compare, commit check, commit confirmed, confirm. Whatever goes wrong, the device returns to its old
configuration, at the latest when the confirmation times out.

A password comes from ``$JUNOS_PASSWORD``; there is no option for it, because everybody on the machine can see
a command line. Keys come from the ssh agent, ``~/.ssh`` or ``--key``.
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
    """The router refused a request, or cannot be talked to."""


class JunosGoneError(JunosError):
    """The router does not answer, or no longer does."""


class JunosLockedError(JunosError):
    """Someone else has locked the router's configuration."""


@dataclass(frozen=True)
class Applied:
    """The result of applying rules.

    Attributes
    ----------
    lines : int
        Number of rules.
    diff : str
        The device's own ``show | compare``; empty if the device already had everything.
    warnings : tuple of str
        The device's warnings, such as that there was nothing to delete.
    committed : bool
    """

    lines: int
    diff: str
    warnings: tuple[str, ...]
    committed: bool


class JunosRouter:
    """A Junos router's candidate configuration. A context manager; calling it applies a controller's rules.

    Parameters
    ----------
    host : str
    port : int
    user : str, optional
        Default: ``$JUNOS_USER``, else the current user.
    key : path, optional
        A private key, in addition to those of the agent and in ``~/.ssh``. ``$JUNOS_PASSWORD`` is its
        passphrase.
    known_hosts : path, optional
        File with the router's host key. Default: ``~/.ssh/known_hosts``.
    check_host_key : bool
        False: trust any host key.
    confirm_minutes : int
        The device rolls an unconfirmed commit back after this time; Junos counts whole minutes.
    timeout_s : float
        Timeout of each request. A commit may take a minute.

    Raises
    ------
    JunosGoneError
        No NETCONF server answers.
    JunosError
        The host key is unknown, or the router refuses the credentials.
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
            raise ParameterError(f"confirm_minutes: {confirm_minutes} must be at least 1")
        self._nc = _import_ncclient()
        self.host, self.port = host, port
        self.user = user or os.environ.get("JUNOS_USER") or getpass.getuser()
        self.key, self.known_hosts, self.check_host_key = key, known_hosts, check_host_key
        self.confirm_minutes, self.timeout_s = confirm_minutes, timeout_s
        self._where = f"{host}:{port}"
        self._manager: Any = None
        self._waiting: list[str] = []
        #: A commit was started, and its outcome is unknown.
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
                # never raise: _request tells errors from warnings itself
                errors_params={"raise_mode": nc.operations.RaiseMode.NONE},
                **options,
            )
        except nc.transport.AuthenticationError:
            raise JunosError(
                f"{where}: refuses the user {self.user}: check the keys or $JUNOS_PASSWORD"
            ) from None
        except nc.transport.SSHUnknownHostError as err:
            raise JunosError(
                f"{where}: its host key ({err.fingerprint}) does not match known_hosts"
            ) from None
        except (nc.NCClientError, nc.paramiko.SSHException, OSError, EOFError) as err:
            raise JunosGoneError(f"{where}: no NETCONF server answers ({_one_line(err)})") from None

    def _known_key(self, file: Path) -> str:
        keys = self._nc.paramiko.HostKeys(str(file))
        names = [f"[{self.host}]:{self.port}"] if self.port != 22 else []
        for name in (*names, self.host):
            for found in (keys.lookup(name) or {}).values():
                return str(found.get_base64())
        raise JunosError(f"{self._where}: its host key is not in {file}")

    def _request(self, what: str, request: Callable[..., Any], **arguments: Any) -> tuple[Any, list[str]]:
        """Make a request; returns the answer and its warnings, and raises its errors."""
        if self._manager is None:
            raise JunosGoneError(f"{self._where}: not connected")
        nc = self._nc
        try:
            answer = request(**arguments)
        except (nc.NCClientError, nc.paramiko.SSHException, OSError, EOFError) as err:
            # the rest of the answer may still come, so the session cannot be used again
            with contextlib.suppress(Exception):
                self._manager._session.close()
            self._manager = None
            raise JunosGoneError(f"{self._where}: {what}: the connection ended ({_one_line(err)})") from None
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
            ``set …`` and ``delete …``. No lines at all are fine.

        Raises
        ------
        ParameterError
            A line is neither.
        JunosError
            The router refused, and keeps its old configuration.
        JunosGoneError
            The connection ended. If it did so between the commit and its confirmation, the message says so.
        """
        wanted = _parse_rules(lines)
        if not wanted:
            return Applied(0, "", (), False)
        with self._candidate() as manager:
            warnings = self._load(wanted)
            diff = self._compare()
            commit = bool(diff) or self._in_doubt
            if commit:
                warnings += self._request("commit check", manager.commit, check=True)[1]
                self._commit(manager)
        log.info("%s: %d lines, %s", self._where, len(wanted), "committed" if commit else "nothing changed")
        return Applied(len(wanted), diff, tuple(warnings), commit)

    def __call__(self, lines: str | Iterable[str]) -> Applied | None:
        """As :meth:`apply`, for a controller that emits only changes and must keep running.

        While the router is gone or someone else has locked its configuration, this logs one line, returns
        None, and keeps the rules for the next call. Rules may be repeated safely. A refusal is raised.
        """
        self._waiting += _parse_rules(lines)
        wanted = list(self._waiting)
        try:
            done = self.apply(wanted)
        except (JunosGoneError, JunosLockedError) as err:
            log.warning("%s; %d lines are waiting", err, len(wanted))
            return None
        except JunosError:
            self._waiting.clear()
            raise
        self._waiting.clear()
        return done

    def compare(self, lines: str | Iterable[str]) -> Applied:
        """What the device would change, and whether its commit check passes. Changes nothing."""
        wanted = _parse_rules(lines)
        with self._candidate() as manager:
            warnings = self._load(wanted) if wanted else []
            diff = self._compare()
            if diff:
                warnings += self._request("commit check", manager.commit, check=True)[1]
        return Applied(len(wanted), diff, tuple(warnings), False)

    @contextlib.contextmanager
    def _candidate(self) -> Iterator[Any]:
        """Lock the candidate; afterwards discard what is left in it and unlock it, whatever happened."""
        if self._manager is None or not self._manager.connected:
            self.close()
            self._connect()
            self._lock()
        else:
            try:
                self._lock()
            except JunosGoneError:  # the connection ended while it was idle
                self._connect()
                self._lock()
        manager = self._manager
        try:
            yield manager
        finally:
            # a session that ended has neither lock nor candidate; its own error is already on the way
            with contextlib.suppress(JunosGoneError):
                self._release("discard", manager.discard_changes)
                self._release("unlock", manager.unlock, target="candidate")

    def _lock(self) -> None:
        try:
            self._request("lock", self._manager.lock, target="candidate")
        except JunosGoneError:
            raise
        except JunosError as err:
            raise JunosLockedError(str(err)) from None

    def _release(self, what: str, request: Callable[..., Any], **arguments: Any) -> None:
        try:
            self._request(what, request, **arguments)
        except JunosGoneError:
            raise
        except JunosError as err:
            log.warning("%s", err)

    def _load(self, lines: list[str]) -> list[str]:
        try:
            _, warnings = self._request(
                "load", self._manager.load_configuration, action="set", config="\n".join(lines) + "\n"
            )
        except JunosGoneError:
            raise
        except JunosError as err:
            raise JunosError(f"{err}{self._failing_line(lines)}") from None
        return warnings

    def _failing_line(self, lines: list[str]) -> str:
        """The first line that the device refuses, found by bisection."""
        low, high = 0, len(lines)  # the first `low` lines are accepted, the first `high` are not
        with contextlib.suppress(JunosError):
            while high - low > 1:
                middle = (low + high) // 2
                self._request("discard", self._manager.discard_changes)
                try:
                    self._request(
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
        answer, _ = self._request("compare", self._manager.compare_configuration)
        return "\n".join(x.text or "" for x in answer.xpath("//configuration-output")).strip("\n")

    def _commit(self, manager: Any) -> None:
        within = f"the device rolls it back within {self.confirm_minutes} min"
        try:
            self._in_doubt = True
            self._request(
                "commit", manager.commit, confirmed=True, timeout=60 * self.confirm_minutes, comment=_COMMENT
            )
        except JunosGoneError as err:
            raise JunosGoneError(f"{err}; if it was committed, {within}") from None
        except JunosError:
            self._in_doubt = False
            raise
        try:
            self._request("confirm", manager.commit, comment=_COMMENT)
            self._in_doubt = False
        except JunosGoneError as err:
            raise JunosGoneError(f"{err}; {within}, unless the confirmation arrived") from None
        except BaseException as err:
            self._in_doubt = not self._rolled_back(manager)
            if self._in_doubt and isinstance(err, JunosError):
                raise JunosError(f"{err}; {within}") from None
            raise

    def _rolled_back(self, manager: Any) -> bool:
        """Commit the previous configuration at once; returns whether that worked."""
        try:
            self._request("rollback", manager.rollback, rollback=1)
            self._request("commit", manager.commit, comment=f"{_COMMENT}, rolled back")
        except JunosError:
            return False
        return True


def _parse_rules(lines: str | Iterable[str]) -> list[str]:
    """The lines without comments and empty lines; all must be ``set`` or ``delete``."""
    wanted = []
    for number, line in enumerate(lines.splitlines() if isinstance(lines, str) else lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if text.split()[0] not in ("set", "delete") or len(text.split()) < 2 or not text.isprintable():
            raise ParameterError(f"line {number}: {text!r} must be a set or delete statement")
        wanted.append(text)
    return wanted


def _error_text(error: Any) -> str:
    """An ``rpc-error`` as one line: path, message, and the offending word."""
    path, message, word = (
        " ".join((error.findtext(name) or "").split())
        for name in ("error-path", "error-message", "error-info/bad-element")
    )
    message = message or " ".join((error.findtext("error-tag") or "refused").split())
    if word and word not in message:
        message = f"{message}: {word}"
    return f"{path}: {message}" if path else message


def _one_line(err: BaseException) -> str:
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
    for name in ("ncclient", "paramiko"):  # their errors say enough
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
        str, typer.Argument(metavar="RULES.set", help="File with lines for `load set`; - for standard input.")
    ],
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Router.")] = None,
    port: Annotated[int, typer.Option(help="Port of its NETCONF server.", min=1, max=65535)] = PORT,
    user: Annotated[
        str | None, typer.Option(help="User; default: $JUNOS_USER, else the current user.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Private key; default: the ssh agent's and those in ~/.ssh."),
    ] = None,
    known_hosts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Host keys; default: ~/.ssh/known_hosts.")
    ] = None,
    check_host_key: Annotated[
        bool, typer.Option("--check-host-key/--no-check-host-key", help="Verify the router's host key.")
    ] = True,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show what would change, and change nothing.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Commit.")] = False,
    confirm_minutes: Annotated[
        int,
        typer.Option(help="Roll an unconfirmed commit back after this time.", min=1, max=65535),
    ] = 2,
) -> None:
    """Apply rules to a Junos router, or show what they would change.

    Without --compare or --apply, the lines are checked and printed. A password is taken from $JUNOS_PASSWORD.
    """
    if compare and apply:
        raise typer.BadParameter("use either --compare or --apply, not both")
    if (compare or apply) and host is None:
        raise typer.BadParameter("name the router: --host HOST")
    text = sys.stdin.read() if rules == "-" else Path(rules).read_text(encoding="utf-8")
    lines = _parse_rules(text)
    if not (compare or apply):
        for line in lines:
            print(line)
        print(
            f"{len(lines)} lines; nothing was changed (use --compare to ask the router, --apply to commit)",
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
