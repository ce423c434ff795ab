"""Every number in the product, with its unit in its name and its source in its comment.

Objects take their group in the constructor; ``DEFAULT`` is what the command line hands them.
Environment variables never change a limit. Configuration changes one by
``dataclasses.replace`` on one group.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "DEFAULT",
    "EventStreamLimits",
    "ExtensionLimits",
    "FileLimits",
    "FrameLimits",
    "HttpLimits",
    "JsonLimits",
    "LifecycleLimits",
    "Limits",
    "McpLimits",
    "ProcessLimits",
    "ResourceLimits",
    "SchemaLimits",
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
class EventStreamLimits:
    """Bounds on one stream of server-sent events."""

    # reference/mcp.md, section 15: 4 MiB for one SSE event, finished or not
    max_event_bytes: int = 4 * MIB
    # spec/mcp.md: no deadline is longer, so no wait before connecting again need be
    max_retry_seconds: float = 3600


@dataclass(frozen=True)
class HttpLimits:
    """Bounds on one HTTP exchange and on what a client keeps between two."""

    # ours: status line and header fields of an answer, those of interim answers included
    max_head_bytes: int = 64 * KIB
    # ours: header fields of an answer; http.client's bound is 100
    max_headers: int = 128
    # reference/portability.md 7.4: "100 Continue" without end is read for ever
    max_interim_replies: int = 8
    # ours: the line before a chunk, which is a number and seldom more
    max_chunk_line_bytes: int = 4 * KIB
    # ours: one read, as large as a socket's buffer commonly is
    read_bytes: int = 256 * KIB
    # ours: for one address of a name while others are left to try
    connect_seconds: float = 5
    # ours: connections kept for the next exchange
    max_idle_connections: int = 8
    # ours: an idle connection older than this may have been forgotten on the way without a word
    idle_seconds: float = 60


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
class McpLimits:
    """Bounds on an MCP server, and how long its client is patient."""

    # seed 001: tools of one server
    max_tools: int = 512
    # seed 001: one request or response, whatever carries it: a line, a body, an event, all events of a call
    max_message_bytes: int = 4 * MIB
    # seed 001: the deadlines that an operator may set
    min_timeout_seconds: float = 1
    max_timeout_seconds: float = 3600
    # spec/mcp.md, "Negotiation": the longest wait for the answer to the probe
    probe_seconds: float = 10
    # spec/mcp.md, "Deadlines": how long a server on stdio may take to end once its stdin is closed
    exit_seconds: float = 2
    # ours: the same for one that did not answer or was cancelled, well within the second that Ctrl+C has
    cancel_grace_seconds: float = 0.25
    # ours: a cancelled notification or a DELETE at the end, over HTTP, within the same second
    farewell_seconds: float = 0.5
    # ours: answers waiting for a server that asks and does not read
    max_unread_answer_bytes: int = 1 * MIB
    # spec/mcp.md, "Wire": lines on stdout that are no messages, before an answer
    max_noise_lines: int = 64
    # ours: what HTTP repeats of the arguments of one call; servers take some 8 KiB of header fields
    max_mirrored_bytes: int = 8 * KIB
    # spec/mcp.md, "Wire": the name of a tool
    max_name_bytes: int = 128
    # ours: all pages of a listing, as JSON; four messages of the largest kind
    max_catalogue_bytes: int = 16 * MIB
    # ours: as many pages as tools, and as many empty ones
    max_pages: int = 1024
    # WHATWG HTML, "Server-sent events": "a few seconds" where the server named no time to reconnect
    reconnect_seconds: float = 1
    # ours: the least time before that, or a server that names none and closes at once would have us spin
    min_reconnect_seconds: float = 0.05
    # ours: what is quoted of a server's words in a message
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
class SchemaLimits:
    """Bounds on one JSON Schema, on its patterns, and on the work of one check."""

    # ours: schemas in one document, the ones nested in it included
    max_nodes: int = 10_000
    # ours: the address of a schema without its fragment, joined and not; servers take some 8 KiB, and each
    # reference is joined to the one above it
    max_address_chars: int = 2 * KIB
    # ours: references followed inside one another in a check; JSON nests to 128, two for each level and more
    max_references: int = 512
    # ours: work of one check, some ten seconds of it at worst; a 4 MiB instance takes two million or three
    max_steps: int = 5_000_000
    # ours: steps between two looks at whether the check is to be given up, some tens of milliseconds
    max_steps_unseen: int = 20_000
    # ours: the text of one pattern
    max_pattern_chars: int = 8 * KIB
    # ours: groups inside one another in a pattern
    max_pattern_depth: int = 64
    # ours: characters a pattern names when every repetition is written out; its tables are quadratic in them
    max_pattern_states: int = 5_000
    # ours: the same for all patterns of a schema together
    max_all_pattern_states: int = 20_000
    # ours: moves that the matcher of one pattern remembers, 2 MB of them
    max_kept_moves: int = 20_000
    # ours: what is quoted of a schema or an instance in a message, most of a line
    max_quoted_chars: int = 60
    # ours: the place of an issue or a fault, as it is told
    max_path_chars: int = 300
    # ours: sentences kept about what of a schema is not checked
    max_unchecked: int = 50


@dataclass(frozen=True)
class Limits:
    """One of each group."""

    json: JsonLimits = field(default_factory=JsonLimits)
    frame: FrameLimits = field(default_factory=FrameLimits)
    event_stream: EventStreamLimits = field(default_factory=EventStreamLimits)
    http: HttpLimits = field(default_factory=HttpLimits)
    lifecycle: LifecycleLimits = field(default_factory=LifecycleLimits)
    extension: ExtensionLimits = field(default_factory=ExtensionLimits)
    mcp: McpLimits = field(default_factory=McpLimits)
    resource: ResourceLimits = field(default_factory=ResourceLimits)
    process: ProcessLimits = field(default_factory=ProcessLimits)
    file: FileLimits = field(default_factory=FileLimits)
    schema: SchemaLimits = field(default_factory=SchemaLimits)


DEFAULT = Limits()
