"""Every number in the product, with its unit in its name and its source in its comment.

Objects take their group in the constructor; ``DEFAULT`` is what the command line hands them.
Environment variables never change a limit. Configuration changes one by
``dataclasses.replace`` on one group.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "DEFAULT",
    "ExtensionLimits",
    "FileLimits",
    "FrameLimits",
    "JsonLimits",
    "LifecycleLimits",
    "Limits",
    "ProcessLimits",
    "ResourceLimits",
]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True)
class JsonLimits:
    """Bounds on one JSON text."""

    # ours: deeper values are machine noise, and the standard parser recurses
    max_depth: int = 128
    # security.md T26: longer numbers cannot be recorded and are quadratic to convert
    max_number_chars: int = 400
    # ours: what is quoted of a bad text in a message, most of a line
    max_quoted_chars: int = 60


@dataclass(frozen=True)
class FrameLimits:
    """Bounds on one Content-Length frame."""

    # seed 000: frames are limited to 16 MiB, both ways
    max_body_bytes: int = 16 * MIB
    # spec/extensions.md: header block limit
    max_header_bytes: int = 8 * KIB
    # ours: what is quoted of a bad header in a message, most of a line
    max_quoted_bytes: int = 60


@dataclass(frozen=True)
class LifecycleLimits:
    """Deadlines of an extension's stages; ``[extension_lifecycle]`` and ``lifecycle`` of an entry."""

    # seed 000 and spec/extensions.md, "Lifecycle": the six defaults
    spawn_seconds: float = 5
    initialize_seconds: float = 10
    ready_seconds: float = 30
    request_seconds: float = 120
    shutdown_seconds: float = 5
    exit_seconds: float = 5


@dataclass(frozen=True)
class ExtensionLimits:
    """Bounds on what an extension may declare and how it is treated."""

    # spec/extensions.md, "Lifecycle": the largest deadline an operator may set
    max_lifecycle_seconds: float = 3600
    # spec/extensions.md, "Wire": the time an extension has to answer a cancelled request
    cancel_grace_seconds: float = 0.5
    # spec/extensions.md, "Registrations"
    max_name_bytes: int = 128
    # ours: as many tools as the MCP seed allows a server, for every kind of registration together
    max_registrations: int = 512
    # ours: answers waiting for a peer that asks and does not read
    max_unread_answer_bytes: int = 1 * MIB
    # security.md T29: what one context source may add to a request
    max_context_bytes: int = 8 * KIB
    # security.md T29: how often one context source may add to the requests of one epoch
    max_context_changes: int = 16
    # ours: frames that one trace keeps
    max_trace_bytes: int = 32 * MIB
    # ours: what is quoted of a peer's words (a name, a method, an error, its stderr) in a message
    max_quoted_chars: int = 300


@dataclass(frozen=True)
class ResourceLimits:
    """What one sandbox may use; ``[sandbox]`` sets each."""

    # spec/sandbox.md, "Sizes"
    home_bytes: int = 2 * GIB
    tmp_bytes: int = 2 * GIB
    var_tmp_bytes: int = 256 * MIB
    shm_bytes: int = 256 * MIB
    # spec/sandbox.md: a peer's private directory, /run/peer
    peer_bytes: int = 16 * MIB
    # security.md T16: prlimit before the first instruction of the child
    max_processes: int = 512
    max_open_files: int = 4096
    max_core_bytes: int = 0
    max_file_bytes: int = 4 * GIB


@dataclass(frozen=True)
class ProcessLimits:
    """How children are started, watched and ended."""

    # reference/sandbox.md 3.3: all steps of a kill together ("2 s is generous")
    kill_seconds: float = 2
    # ours: between two looks at whether a process that was killed can be reaped
    reap_poll_seconds: float = 0.001
    # ours: how long a monitor may take to end by itself after its sandbox was killed, to tell the exit status
    drain_seconds: float = 0.25
    # ours: between two passes over idle peers; a full pipe is emptied 10 times a second
    housekeeping_seconds: float = 0.1
    # ours: read size of one pass, the default capacity of a Linux pipe
    read_bytes: int = 64 * KIB
    # ARCHITECTURE.md, "Limits": what is kept of a peer's stderr
    stderr_tail_bytes: int = 8 * KIB
    # ours: bytes one idle pass reads from one peer before it looks at the next
    idle_read_bytes: int = 1 * MIB
    # reference/sandbox.md 2.4: "a deadline of a few seconds"
    probe_seconds: float = 5
    # ours: a host begins a new file at half of it; some 20,000 starts
    max_ledger_bytes: int = 8 * MIB
    # ours: between two looks at whether another thread has done the probe or sweep that all wait for
    turn_seconds: float = 0.005
    # security.md T24: between the two scans for what a killed host left
    rescan_seconds: float = 0.1
    # ours: another process's sweep takes two scans; one that lasts longer was stopped
    sweep_wait_seconds: float = 1
    # security.md T24: an unfinished entry is kept until the host was dead this long
    dead_host_seconds: float = 10
    # reference/sandbox.md 1.1: bubblewrap refuses more
    max_sandbox_arguments: int = 9000
    # ours: between two looks at whether a sandbox that waits at its gate has made all of its mounts
    gate_poll_seconds: float = 0.0001
    # ours: what bubblewrap says of itself, which is 8 KiB in version 0.11
    max_help_bytes: int = 256 * KIB
    # ours: what run_sandboxed keeps of each stream
    max_output_bytes: int = 4 * MIB
    # security.md T16: run_command's default
    command_seconds: float = 120


@dataclass(frozen=True)
class FileLimits:
    """Reads of files that others may have written."""

    # security.md T7, T8: every workspace file that the host itself opens
    max_workspace_file_bytes: int = 64 * KIB
    # ours: a configuration file
    max_config_bytes: int = 1 * MIB
    # ours: what is quoted of a wrong value of a configuration, most of a line
    max_quoted_chars: int = 60
    # ours: symbolic links followed by our own walks, as the kernel's own bound
    max_links: int = 40
    # Linux, BINPRM_BUF_SIZE: the kernel reads no more of a "#!" line
    max_shebang_bytes: int = 256
    # ours: levels of directories below .git/modules in which submodules are looked for
    max_module_depth: int = 8
    # ours: entries below the protected names of a workspace whose change in a run is looked for
    max_protected_entries: int = 1000
    # ours: entries that doctor looks at for sockets, under each directory that children are shown
    max_socket_search_entries: int = 10_000


@dataclass(frozen=True)
class Limits:
    """One of each group."""

    json: JsonLimits = field(default_factory=JsonLimits)
    frame: FrameLimits = field(default_factory=FrameLimits)
    lifecycle: LifecycleLimits = field(default_factory=LifecycleLimits)
    extension: ExtensionLimits = field(default_factory=ExtensionLimits)
    resource: ResourceLimits = field(default_factory=ResourceLimits)
    process: ProcessLimits = field(default_factory=ProcessLimits)
    file: FileLimits = field(default_factory=FileLimits)


DEFAULT = Limits()
