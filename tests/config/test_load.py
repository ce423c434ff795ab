"""What a configuration says becomes settings; what is wrong in it is named exactly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from latch import settings as values
from latch.config.load import Settings
from latch.errors import ConfigError, ConfigProblem, UnsafeModes
from latch.limits import ExtensionLimits, FileLimits, LifecycleLimits, Limits, McpLimits, ResourceLimits
from latch.system.bindsources import find_private_places
from latch.system.machine import Machine

FIXTURES = Path(__file__).parents[2] / "fixtures" / "config"
LARGEST = 2**63 - 1
SECONDS = "must be a number of seconds above 0 and at most 3600, found "
WHOLE = f"must be a whole number from 1 to {LARGEST}, found "


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine whose home is empty but for our own directory."""
    home = tmp_path / "home" / "user"
    (home / ".latch").mkdir(parents=True, mode=0o700)
    return Machine.read({"HOME": str(home)})


def write(machine: Machine, text: str, *, name: str = "config.toml", mode: int = 0o600) -> Path:
    """Write a file into our own directory."""
    path = machine.latch_directory / name
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def load(machine: Machine, text: str) -> Settings:
    """Load *text* as the default file."""
    write(machine, text)
    return Settings.load(machine=machine)


def problems(machine: Machine, text: str) -> list[ConfigProblem]:
    """Return what is wrong with *text*."""
    with pytest.raises(ConfigError) as caught:
        load(machine, text)
    return list(caught.value.problems)


def listing(place: Path) -> list[str]:
    """Everything below *place*."""
    return sorted(str(path) for path in place.rglob("*"))


# -- what is right


def test_without_a_file_there_are_defaults_and_nothing_is_made(machine: Machine) -> None:
    before = listing(machine.home)
    settings = Settings.load(machine=machine)
    assert settings.file is None
    assert settings.extensions == () and settings.mcp_servers == ()
    assert settings.lifecycle == LifecycleLimits()
    assert settings.sandbox.resources == ResourceLimits()
    assert settings.sandbox.bwrap is None
    assert settings.sandbox.config_file is None
    assert settings.sandbox.state_directory == machine.home / ".latch" / "state"
    assert set(settings.origins.values()) == {"default"}
    assert {"state_dir", "sandbox.bwrap", "extension_lifecycle.exit_seconds"} <= set(settings.origins)
    assert listing(machine.home) == before


def test_without_our_directory_there_are_defaults(tmp_path: Path) -> None:
    assert Settings.load(machine=Machine.read({"HOME": str(tmp_path / "absent")})).file is None


def test_the_process_is_the_default_machine(own_home: Path) -> None:
    (own_home / ".latch").mkdir(mode=0o700)
    write(Machine.read(), 'state_dir = "here"')
    settings = Settings.load()
    assert settings.sandbox.state_directory == own_home / ".latch" / "here"


def test_the_result_is_settings_for_everybody(machine: Machine) -> None:
    assert isinstance(Settings.load(machine=machine), values.Settings)


def test_every_key_is_taken_over(machine: Machine) -> None:
    text = (FIXTURES / "good" / "full.toml").read_text(encoding="utf-8")
    file = write(machine, text)
    settings = Settings.load(machine=machine)
    lifecycle = LifecycleLimits(spawn_seconds=1, ready_seconds=0.5)
    sandbox = values.SandboxSettings(
        bwrap=Path("/usr/bin/bwrap"),
        resources=ResourceLimits(
            home_bytes=1073741824,
            tmp_bytes=1073741824,
            var_tmp_bytes=1048576,
            shm_bytes=1048576,
            peer_bytes=1048576,
            max_processes=64,
            max_open_files=256,
            max_core_bytes=0,
            max_file_bytes=1048576,
        ),
        state_directory=machine.latch_directory / "state-of-mine",
        config_file=file,
    )
    assert settings == Settings(
        file=file,
        extensions=(
            values.ExtensionSettings(
                name="lint",
                command="python3",
                args=("/opt/latch/lint.py", ""),
                enabled=False,
                env={"LINT_LEVEL": "2", "LANG": "de_DE.UTF-8"},
                env_from=("LINT_TOKEN",),
                ro_paths=(Path("/opt/toolchain"), machine.home / "rules"),
                rw_paths=(machine.home / "lint-cache",),
                network=False,
                cwd="workspace",
                trusted_tools=True,
                allow=("observe:*", "transform:tool_arguments", "guard:child.spawn", "guard:*"),
                lifecycle=LifecycleLimits(spawn_seconds=1, ready_seconds=5, exit_seconds=3600),
                sandbox=sandbox,
            ),
        ),
        lifecycle=lifecycle,
        sandbox=sandbox,
        origins=settings.origins,
    )
    defaults = {key for key, origin in settings.origins.items() if origin == "default"}
    assert defaults == {
        f"{table}.{key}_seconds"
        for table in ("extension_lifecycle", "extensions.lint.lifecycle")
        for key in ("initialize", "request", "shutdown", "exit")
    } - {"extensions.lint.lifecycle.exit_seconds"}
    assert set(settings.origins.values()) == {"default", str(file)}
    assert settings.origins["sandbox.max_core_bytes"] == str(file)


def test_an_entry_has_the_defaults_of_its_page(machine: Machine) -> None:
    text = (FIXTURES / "good" / "minimal.toml").read_text(encoding="utf-8")
    settings = load(machine, text)
    first, second = settings.extensions
    assert first == values.ExtensionSettings(
        name="a",
        command=str(machine.home / "bin" / "a"),
        lifecycle=LifecycleLimits(),
        sandbox=settings.sandbox,
    )
    assert second.lifecycle == LifecycleLimits(spawn_seconds=2)
    assert settings.origins["extensions.a.command"] == str(settings.file)
    assert settings.origins["extensions.a.network"] == "default"
    assert settings.origins["extensions.a.lifecycle.spawn_seconds"] == "default"
    assert settings.origins["extensions.B-2.lifecycle.spawn_seconds"] == str(settings.file)


def test_every_key_of_a_server_is_taken_over_and_only_those_of_its_transport(machine: Machine) -> None:
    settings = load(machine, (FIXTURES / "good" / "servers.toml").read_text(encoding="utf-8"))
    assert settings.mcp_servers == (
        values.McpServerSettings(
            name="files",
            transport="stdio",
            enabled=False,
            timeout_seconds=3600,
            command=str(machine.home / "bin" / "files"),
            args=("--root", ""),
            env={"FILES_LEVEL": "2"},
            env_from=("FILES_TOKEN",),
            ro_paths=(Path("/opt/toolchain"), machine.home / "rules"),
            rw_paths=(machine.home / "files-cache",),
            network=False,
            cwd="workspace",
            lifetime="call",
            sandbox=settings.sandbox,
        ),
        values.McpServerSettings(
            name="Remote-2",
            transport="streamable_http",
            timeout_seconds=1.5,
            url="https://example.com:8443/mcp?tenant=7",
            bearer_token_env="EXAMPLE_MCP_TOKEN",
            headers_from_env={"X-Api-Key": "EXAMPLE_KEY", "x-other": "_2"},
            ca_bundle=machine.home / "ca.pem",
            sandbox=settings.sandbox,
        ),
        values.McpServerSettings(name="a", transport="stdio", command="a", sandbox=settings.sandbox),
        values.McpServerSettings(
            name="b", transport="streamable_http", url="http://localhost", sandbox=settings.sandbox
        ),
    )
    file = str(settings.file)
    program = ("args", "env", "env_from", "ro_paths", "rw_paths", "network", "cwd", "lifetime")
    remote = ("bearer_token_env", "headers_from_env", "ca_bundle")
    both = ("enabled", "timeout_seconds")
    assert {key: origin for key, origin in settings.origins.items() if key.startswith("mcp_servers.")} == {
        **{f"mcp_servers.{name}.{key}": file for name in ("files", "a") for key in ("name", "command")},
        **{f"mcp_servers.{name}.{key}": file for name in ("Remote-2", "b") for key in ("name", "url")},
        **{f"mcp_servers.{name}.transport": file for name in ("files", "Remote-2", "a", "b")},
        **{f"mcp_servers.files.{key}": file for key in (*both, *program)},
        **{f"mcp_servers.Remote-2.{key}": file for key in (*both, *remote)},
        **{f"mcp_servers.a.{key}": "default" for key in (*both, *program)},
        **{f"mcp_servers.b.{key}": "default" for key in (*both, *remote)},
    }


@pytest.mark.parametrize("path", sorted((FIXTURES / "good").glob("*.toml")), ids=lambda path: str(path.stem))
def test_a_good_file_is_loaded_by_name(path: Path, machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    named = tmp_path / "elsewhere" / path.name
    named.write_bytes(path.read_bytes())
    named.chmod(0o600)
    settings = Settings.load(named, machine=machine)
    assert settings.file == named
    assert tmp_path / "elsewhere" in find_private_places(machine, settings.sandbox).directories


def test_values_cannot_be_changed(machine: Machine) -> None:
    settings = load(machine, '[[extensions]]\nname = "a"\ncommand = "a"\nenv = { A = "1" }\n')
    with pytest.raises(TypeError):
        settings.extensions[0].env["A"] = "2"  # type: ignore[index]
    with pytest.raises(TypeError):
        settings.origins["x"] = "y"  # type: ignore[index]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("/var/lib/latch", "/var/lib/latch"),
        ("~/state", "{home}/state"),
        ("../state", "{home}/state"),
        ("state", "{home}/.latch/state"),
    ],
)
def test_the_state_directory_is_absolute_or_beside_the_file(
    machine: Machine, written: str, expected: str
) -> None:
    settings = load(machine, f'state_dir = "{written}"')
    place = Path(expected.format(home=machine.home))
    assert settings.sandbox.state_directory == place
    assert Path(os.path.realpath(place)) in find_private_places(machine, settings.sandbox).directories
    assert settings.origins["state_dir"] == str(settings.file)


def test_a_moved_directory_is_the_origin_of_the_state_directory(machine: Machine, tmp_path: Path) -> None:
    moved = Machine.read({"HOME": str(machine.home), "LATCH_DIRECTORY": str(tmp_path / "moved")})
    settings = Settings.load(machine=moved)
    assert settings.sandbox.state_directory == tmp_path / "moved" / "state"
    assert settings.origins["state_dir"] == "environment LATCH_DIRECTORY"


def test_t11_a_path_among_what_is_private_is_a_fault_of_its_key(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault" / "file").touch()
    (machine.latch_directory / "secrets.toml").symlink_to(tmp_path / "vault" / "file")
    (tmp_path / "vault" / "file").chmod(0o600)
    (tmp_path / "conf").mkdir()
    named = tmp_path / "conf" / "my.toml"
    shown = [tmp_path / "vault", tmp_path / "conf", machine.latch_directory, machine.latchkey_directory]
    named.write_text(
        f'[[extensions]]\nname = "a"\ncommand = "a"\nro_paths = {[str(path) for path in shown[:1]]}\n'
        f"rw_paths = {[str(path) for path in shown[1:2]]}\n"
        f'[[extensions]]\nname = "b"\ncommand = "a"\nro_paths = ["{shown[2]}"]\nrw_paths = ["{shown[3]}"]\n'
    )
    named.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        Settings.load(named, machine=machine)
    assert [(one.key, f'"{path}"' in one.reason) for one, path in zip(caught.value.problems, shown)] == [
        ("ro_paths[0]", True),
        ("rw_paths[0]", True),
        ("ro_paths[0]", True),
        ("rw_paths[0]", True),
    ]


def test_a_file_in_the_home_itself_does_not_make_the_home_private(machine: Machine) -> None:
    named = machine.home / "my.toml"
    named.write_text('[[extensions]]\nname = "a"\ncommand = "a"\nro_paths = ["~/rules"]\n')
    named.chmod(0o600)
    settings = Settings.load(named, machine=machine)
    assert settings.extensions[0].ro_paths == (machine.home / "rules",)


def test_the_limits_handed_in_hold_where_the_file_is_silent(machine: Machine) -> None:
    write(machine, "[sandbox]\ntmp_bytes = 5\n[extension_lifecycle]\nexit_seconds = 2\n")
    limits = Limits(
        resource=ResourceLimits(max_processes=7, tmp_bytes=9),
        lifecycle=LifecycleLimits(spawn_seconds=1, exit_seconds=9),
        extension=ExtensionLimits(max_lifecycle_seconds=2),
    )
    settings = Settings.load(machine=machine, limits=limits)
    assert settings.sandbox.resources == ResourceLimits(max_processes=7, tmp_bytes=5)
    assert settings.lifecycle == LifecycleLimits(spawn_seconds=1, exit_seconds=2)
    write(machine, "[extension_lifecycle]\nexit_seconds = 3\n")
    with pytest.raises(ConfigError, match="at most 2, found 3"):
        Settings.load(machine=machine, limits=limits)
    write(machine, STDIO + "timeout_seconds = 2")
    with pytest.raises(ConfigError, match="from 3 to 4, found 2"):
        Settings.load(
            machine=machine, limits=Limits(mcp=McpLimits(min_timeout_seconds=3, max_timeout_seconds=4))
        )
    with pytest.raises(ConfigError, match="is larger than 8 bytes"):
        Settings.load(machine=machine, limits=Limits(file=FileLimits(max_config_bytes=8)))


# -- what is wrong

ENTRY = '[[extensions]]\nname = "x"\ncommand = "x"\n'
NAME = "[[extensions]]\ncommand = 'x'\nname = "
COMMAND = "[[extensions]]\nname = 'x'\ncommand = "
SERVER = '[[mcp_servers]]\nname = "x"\n'
STDIO = SERVER + 'transport = "stdio"\ncommand = "x"\n'
HTTP = SERVER + 'transport = "streamable_http"\nurl = "https://example.com"\n'
S = 'mcp_servers[0] "x"'
LIFECYCLE = "extension_lifecycle"
FIRST = "extensions[0]"
X = 'extensions[0] "x"'
VARIABLE = "is no name of a variable: letters, digits and _, no digit first"


@pytest.mark.parametrize(
    ("text", "entry", "key", "fragment"),
    [
        # the top
        ("mcp = 1", None, "mcp", "is not a known key; known are state_dir, extensions,"),
        ("[sandboxes]\na = 1", None, "sandboxes", 'is not a known key, did you mean "sandbox"?'),
        ("state_dir = 3", None, "state_dir", "must be a string, found 3"),
        ('state_dir = ""', None, "state_dir", "must not be empty"),
        ('state_dir = "a\\u0000b"', None, "state_dir", "contains a NUL character"),
        ('state_dir = "~"', None, "state_dir", "is or contains the home directory"),
        ('state_dir = ".."', None, "state_dir", "is or contains the home directory"),
        ('state_dir = "/"', None, "state_dir", "is or contains the home directory"),
        ("sandbox = 1", None, "sandbox", "must be a table, found 1"),
        ("extension_lifecycle = []", None, "extension_lifecycle", "must be a table, found a list"),
        ("extensions = 1.5", None, "extensions", "must be written [[extensions]]"),
        ("[extensions]\nname = 'x'", None, "extensions", "once for each entry, found a table"),
        ("extensions = [1]", None, "extensions[0]", "must be a table, found 1"),
        # [extension_lifecycle]
        ("[extension_lifecycle]\nready = 1", LIFECYCLE, "ready", 'did you mean "ready_seconds"?'),
        ("[extension_lifecycle]\nexit_seconds = 0", LIFECYCLE, "exit_seconds", SECONDS + "0"),
        ("[extension_lifecycle]\nexit_seconds = -0.5", LIFECYCLE, "exit_seconds", SECONDS + "-0.5"),
        ("[extension_lifecycle]\nexit_seconds = 3600.1", LIFECYCLE, "exit_seconds", SECONDS + "3600.1"),
        ("[extension_lifecycle]\nexit_seconds = nan", LIFECYCLE, "exit_seconds", SECONDS + "nan"),
        ("[extension_lifecycle]\nexit_seconds = inf", LIFECYCLE, "exit_seconds", SECONDS + "inf"),
        ("[extension_lifecycle]\nexit_seconds = true", LIFECYCLE, "exit_seconds", SECONDS + "true"),
        ('[extension_lifecycle]\nexit_seconds = "1"', LIFECYCLE, "exit_seconds", SECONDS + '"1"'),
        # [sandbox]
        ("[sandbox]\nenabled = false", "sandbox", "enabled", "is not a known key"),
        ('[sandbox]\nbwrap = "bwrap"', "sandbox", "bwrap", 'must be an absolute path, found "bwrap"'),
        ("[sandbox]\nbwrap = true", "sandbox", "bwrap", "must be a string, found true"),
        ("[sandbox]\nhome_bytes = 0", "sandbox", "home_bytes", WHOLE + "0"),
        ("[sandbox]\ntmp_bytes = 1.5", "sandbox", "tmp_bytes", WHOLE + "1.5"),
        ("[sandbox]\nvar_tmp_bytes = true", "sandbox", "var_tmp_bytes", WHOLE + "true"),
        ('[sandbox]\nshm_bytes = "1G"', "sandbox", "shm_bytes", WHOLE + '"1G"'),
        (f"[sandbox]\npeer_bytes = {LARGEST + 1}", "sandbox", "peer_bytes", "found a number beyond 64 bits"),
        (
            f"[sandbox]\nhome_bytes = 0x{'f' * 10000}",
            "sandbox",
            "home_bytes",
            "found a number beyond 64 bits",
        ),
        ("[sandbox]\nmax_processes = 2020-01-01", "sandbox", "max_processes", WHOLE + "a date or time"),
        ("[sandbox]\nmax_open_files = {}", "sandbox", "max_open_files", WHOLE + "a table"),
        ("[sandbox]\nmax_core_bytes = -1", "sandbox", "max_core_bytes", f"from 0 to {LARGEST}, found -1"),
        ("[sandbox]\nmax_file_bytes = 0", "sandbox", "max_file_bytes", WHOLE + "0"),
        # [[extensions]]: who
        ("[[extensions]]\ncommand = 'x'", FIRST, "name", "is missing"),
        ("[[extensions]]\nname = 'x'", X, "command", "is missing"),
        (NAME + "''", FIRST, "name", "must not be empty"),
        (NAME + "'a_b'", FIRST, "name", 'must be 1 to 32 letters, digits or hyphens, found "a_b"'),
        (NAME + f"'{'a' * 33}'", FIRST, "name", "must be 1 to 32 letters"),
        (NAME + '"a\\n"', FIRST, "name", "must be 1 to 32 letters"),
        (NAME + "'é'", FIRST, "name", "must be 1 to 32 letters"),
        (NAME + "7", FIRST, "name", "must be a string, found 7"),
        (ENTRY + ENTRY, 'extensions[1] "x"', "name", "is already the name of extensions[0]"),
        (ENTRY + "trusted = true", X, "trusted", 'is not a known key, did you mean "trusted_tools"?'),
        (ENTRY + "timeout_seconds = 5", X, "timeout_seconds", "belongs to [[mcp_servers]]"),
        (ENTRY + "url = 'https://example.com'", X, "url", "belongs to [[mcp_servers]]"),
        # [[extensions]]: what runs
        (COMMAND + "''", X, "command", "must not be empty"),
        (COMMAND + "['x']", X, "command", "must be a string, found a list"),
        (COMMAND + "'./x'", X, "command", 'or begin with "/" or "~/", found "./x"'),
        (COMMAND + "'~u/x'", X, "command", 'or begin with "/" or "~/", found "~u/x"'),
        (COMMAND + '"a\\u0000"', X, "command", "contains a NUL character"),
        (COMMAND + "'npx -y @x/y'", X, "command", 'which is "npx": the words after it go to args'),
        (ENTRY + "args = '-v'", X, "args", 'must be a list of strings, found "-v"'),
        (ENTRY + "args = ['a', 1]", X, "args[1]", "must be a string, found 1"),
        (ENTRY + 'args = ["a\\u0000"]', X, "args[0]", "contains a NUL character"),
        (ENTRY + "enabled = 1", X, "enabled", "must be true or false, found 1"),
        (ENTRY + "network = 'off'", X, "network", 'must be true or false, found "off"'),
        (ENTRY + "trusted_tools = 0", X, "trusted_tools", "must be true or false, found 0"),
        (ENTRY + "cwd = 'home'", X, "cwd", 'must be "private" or "workspace", found "home"'),
        (ENTRY + "cwd = []", X, "cwd", 'must be "private" or "workspace", found a list'),
        # [[extensions]]: its environment
        (ENTRY + "env = ['A=1']", X, "env", "must be a table, found a list"),
        (ENTRY + "env = { A = 1 }", X, "env.A", "must be a string, found 1"),
        (ENTRY + 'env = { A = "\\u0000" }', X, "env.A", "contains a NUL character"),
        (ENTRY + "env = { 'A-B' = '' }", X, "env", f'"A-B" {VARIABLE}'),
        (ENTRY + "env = { '1A' = '' }", X, "env", f'"1A" {VARIABLE}'),
        (ENTRY + "env = { '' = '' }", X, "env", "must not be empty"),
        (ENTRY + "env = { PATH = '/bin' }", X, "env", '"PATH" follows from the command; show more'),
        (ENTRY + "env = { HOME = '/' }", X, "env", '"HOME" is set by the sandbox itself'),
        (ENTRY + "env = { LATCH_SANDBOX = '0' }", X, "env", '"LATCH_SANDBOX" is set by the sandbox itself'),
        (ENTRY + "env_from = 'A'", X, "env_from", 'must be a list of names of variables, found "A"'),
        (ENTRY + "env_from = ['A', 'A=1']", X, "env_from[1]", f'"A=1" {VARIABLE}'),
        (ENTRY + "env_from = ['LATCH_WORKSPACE']", X, "env_from[0]", "is set by the sandbox itself"),
        (ENTRY + "env_from = ['A']\nenv = { A = '1' }", X, "env_from", '"A" has a value in env already'),
        # [[extensions]]: what it sees
        (ENTRY + "ro_paths = '/opt'", X, "ro_paths", 'must be a list of paths, found "/opt"'),
        (ENTRY + "ro_paths = ['/opt', 'opt']", X, "ro_paths[1]", 'must begin with "/" or "~/", found "opt"'),
        (ENTRY + "ro_paths = ['']", X, "ro_paths[0]", "must not be empty"),
        (ENTRY + "ro_paths = ['/']", X, "ro_paths[0]", "contains the home directory"),
        (ENTRY + "ro_paths = ['~']", X, "ro_paths[0]", "is the home directory"),
        (ENTRY + "ro_paths = ['/run']", X, "ro_paths[0]", '"/run" is /run'),
        (ENTRY + "ro_paths = ['~/.ssh']", X, "ro_paths[0]", 'is "~/.ssh", which may hold secrets'),
        (ENTRY + "ro_paths = ['~/.latch/x']", X, "ro_paths[0]", "which is private"),
        (ENTRY + "rw_paths = ['~/.latch']", X, "rw_paths[0]", "which is private"),
        (ENTRY + "rw_paths = ['~/.latchkey/x']", X, "rw_paths[0]", "which is private"),
        (ENTRY + "rw_paths = ['~/.profile']", X, "rw_paths[0]", "which runs when you log in or work"),
        (ENTRY + "rw_paths = [1]", X, "rw_paths[0]", "must be a string, found 1"),
        # [[extensions]]: what it may
        (ENTRY + "allow = 'observe:*'", X, "allow", 'must be a list of permissions, found "observe:*"'),
        (ENTRY + "allow = ['observe']", X, "allow[0]", "must be observe:NAME, transform:NAME or guard:NAME"),
        (ENTRY + "allow = ['observe:']", X, "allow[0]", 'guard:NAME, found "observe:"'),
        (ENTRY + "allow = ['watch:*']", X, "allow[0]", 'guard:NAME, found "watch:*"'),
        (ENTRY + "allow = ['transform:*']", X, "allow[0]", '"transform:*": transform has no wildcard'),
        (ENTRY + "allow = ['guard:*', 1]", X, "allow[1]", "must be a string, found 1"),
        # [[extensions]]: its deadlines
        (ENTRY + "lifecycle = 5", X, "lifecycle", "must be a table, found 5"),
        (ENTRY + "lifecycle = { ready = 5 }", X, "lifecycle.ready", 'did you mean "ready_seconds"?'),
        (ENTRY + "lifecycle = { ready_seconds = false }", X, "lifecycle.ready_seconds", SECONDS + "false"),
        # [[mcp_servers]]: who
        ("mcp_servers = {}", None, "mcp_servers", "must be written [[mcp_servers]], once for each entry"),
        ("mcp_servers = [1]", None, "mcp_servers[0]", "must be a table, found 1"),
        (STDIO.replace('name = "x"', ""), "mcp_servers[0]", "name", "is missing"),
        (STDIO.replace('"x"', '"a.b"', 1), "mcp_servers[0]", "name", "must be 1 to 32 letters, digits or"),
        (STDIO + STDIO, 'mcp_servers[1] "x"', "name", "is already the name of mcp_servers[0]"),
        (STDIO + ENTRY, S, "name", "is already the name of extensions[0]"),
        (STDIO.replace("x", "X", 1) + ENTRY, 'mcp_servers[0] "X"', "name", "differs only in case from the"),
        (ENTRY + NAME + "'X'", 'extensions[1] "X"', "name", "only in case from the name of ext"),
        (STDIO + "enabled = 'no'", S, "enabled", 'must be true or false, found "no"'),
        (HTTP + "headers = {}", S, "headers", 'is not a known key, did you mean "headers_from_env"?'),
        (STDIO + "headers = {}", S, "headers", '"headers_from_env", which belongs to transport = "str'),
        (STDIO + "zzz = 1", S, "zzz", "env_from, ro_paths, rw_paths, network, cwd, lifetime"),
        (HTTP + "zzz = 1", S, "zzz", "timeout_seconds, url, bearer_token_env, headers_from_env, ca_bundle"),
        (STDIO + "allow = []", S, "allow", "belongs to [[extensions]]"),
        (HTTP + "trusted_tools = 3", S, "trusted_tools", "belongs to [[extensions]]"),
        (STDIO + "lifecycle = {}", S, "lifecycle", "belongs to [[extensions]]"),
        (STDIO + "trusted = true", S, "trusted", "is not a known key"),
        # [[mcp_servers]]: its transport
        (SERVER, S, "transport", 'is missing, must be "stdio" or "streamable_http"'),
        (SERVER + "transport = 'sse'", S, "transport", 'must be "stdio" or "streamable_http", found "sse"'),
        (
            SERVER + "transport = ['stdio']",
            S,
            "transport",
            'must be "stdio" or "streamable_http", found a li',
        ),
        (SERVER + "transport = 'stdio'", S, "command", 'is missing, transport = "stdio" needs it'),
        (HTTP.replace("url", "#"), S, "url", 'is missing, transport = "streamable_http" needs it'),
        (STDIO + "url = 'http://x/'", S, "url", 'belongs to transport = "streamable_http"'),
        (STDIO + "ca_bundle = 3", S, "ca_bundle", 'belongs to transport = "streamable_http"'),
        (HTTP + "command = 'x'", S, "command", 'belongs to transport = "stdio"'),
        (HTTP + "env_from = ['A']", S, "env_from", 'belongs to transport = "stdio"'),
        # [[mcp_servers]]: what runs, and how long
        (STDIO + "timeout_seconds = 0.9", S, "timeout_seconds", "of seconds from 1 to 3600, found 0.9"),
        (HTTP + "timeout_seconds = 3601", S, "timeout_seconds", "of seconds from 1 to 3600, found 3601"),
        (STDIO + "lifetime = 'run'", S, "lifetime", 'must be "session" or "call", found "run"'),
        (STDIO + "cwd = 'home'", S, "cwd", 'must be "private" or "workspace", found "home"'),
        (STDIO + "rw_paths = ['~/.latch']", S, "rw_paths[0]", "which is private"),
        (STDIO + "env = { HOME = '' }", S, "env", '"HOME" is set by the sandbox itself'),
        (STDIO + "env_from = ['A']\nenv = { A = '' }", S, "env_from", '"A" has a value in env already'),
        (STDIO + "enabled = false\nargs = [1]", S, "args[0]", "must be a string, found 1"),
        # [[mcp_servers]]: where it is and what it is sent
        (HTTP.replace("https", "http"), S, "url", "http is only for 127.0.0.0/8, [::1] and localhost"),
        (HTTP + "ca_bundle = 'ca.pem'", S, "ca_bundle", 'must begin with "/" or "~/", found "ca.pem"'),
        (HTTP + "bearer_token_env = 'a-b'", S, "bearer_token_env", "must be the name of a variable"),
        (HTTP + "headers_from_env = { Host = 'A' }", S, "headers_from_env.Host", "is set by HTTP or by"),
        (HTTP + "headers_from_env = { X = '' }", S, "headers_from_env.X", "must be the name of a variable"),
        (
            HTTP + "headers_from_env = { authorization = 'A' }\nbearer_token_env = 'A'",
            S,
            "headers_from_env",
            '"Authorization" is what bearer_token_env sets',
        ),
    ],
)
def test_a_fault_is_named_by_entry_key_and_reason(
    machine: Machine, text: str, entry: str | None, key: str, fragment: str
) -> None:
    (problem,) = problems(machine, text)
    assert problem.file == str(machine.latch_directory / "config.toml")
    assert (problem.entry, problem.key) == (entry, key)
    assert fragment in problem.reason


def test_all_faults_inside_one_value_are_said(machine: Machine) -> None:
    text = (
        "[[extensions]]\nname = 'a'\ncommand = 'a'\nargs = [1, 'x', 2]\nenv = { HOME = '', A = 1, B = 2 }\n"
        "[[mcp_servers]]\nname = 'b'\ntransport = 'streamable_http'\nurl = 'http://me@example.com/#x'\n"
        "headers_from_env = { Host = 'A', X = '9' }\n"
    )
    found = problems(machine, text)
    assert [one.key for one in found if one.entry == 'extensions[0] "a"'] == [
        *("args[0]", "args[2]", "env", "env.A", "env.B")
    ]
    assert [one.key for one in found if one.entry == 'mcp_servers[0] "b"'] == [
        *("url", "url", "url", "headers_from_env.Host", "headers_from_env.X")
    ]


def test_a_long_value_is_cut(machine: Machine) -> None:
    (problem,) = problems(machine, ENTRY + f"network = '{'y' * 1000}'")
    assert problem.reason == f'must be true or false, found "{"y" * 60}..."'


@pytest.mark.parametrize(
    "text",
    [
        'args = ["s3cret\\u0000"]',
        'env = { A = "s3cret\\u0000" }',
        "args = 1\n[[extensions]]\ncommand = 'x s3cret'",
    ],
)
def test_arguments_and_values_of_the_environment_are_not_quoted(machine: Machine, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(machine, ENTRY + text)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        'url = "https://me:s3cret@example.com/"',
        'url = "http://example.com/?key=s3cret"',
        'bearer_token_env = "s3cret-token"',
        'headers_from_env = { X-Key = "s3cret-token" }',
        'headers_from_env = { "X-Key: s3cret" = "A" }',
    ],
)
def test_t27_what_may_be_a_secret_of_a_server_is_not_quoted(machine: Machine, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(machine, SERVER + 'transport = "streamable_http"\n' + text)
    assert "s3cret" not in str(caught.value)


def test_a_field_may_be_given_without_a_token_and_beside_one(machine: Machine) -> None:
    alone = load(machine, HTTP + "headers_from_env = { Authorization = 'A' }")
    assert alone.mcp_servers[0].headers_from_env == {"Authorization": "A"}
    beside = load(machine, HTTP + "headers_from_env = { X-Key = 'A' }\nbearer_token_env = 'A'")
    assert beside.mcp_servers[0].bearer_token_env == "A"


@pytest.mark.parametrize("path", sorted((FIXTURES / "bad").glob("*.toml")), ids=lambda path: str(path.stem))
def test_all_faults_of_a_file_are_said_at_once(path: Path, machine: Machine) -> None:
    file = write(machine, path.read_text(encoding="utf-8"))
    with pytest.raises(ConfigError) as caught:
        Settings.load(machine=machine)
    expected = path.with_suffix(".txt").read_text(encoding="utf-8").strip()
    assert str(caught.value) == expected.replace("{file}", str(file)).replace("{home}", str(machine.home))


def test_a_named_file_must_exist(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.load(tmp_path / "absent.toml", machine=machine)
    assert str(caught.value) == f"{tmp_path / 'absent.toml'}: does not exist"


def test_a_relative_name_is_made_absolute(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my.toml").write_text("")
    (tmp_path / "my.toml").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    assert Settings.load(Path("my.toml"), machine=machine).file == tmp_path / "my.toml"


# -- owners and modes


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(machine: Machine, mode: int) -> None:
    file = write(machine, "", mode=mode)
    with pytest.raises(ConfigError) as caught:
        Settings.load(machine=machine)
    assert isinstance(caught.value, UnsafeModes)
    assert str(caught.value) == f"{file}: has mode {mode:04o}, must be writable by its owner alone"
    assert caught.value.hint == f"chmod go-w {file}"


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o644])
def test_a_file_that_others_may_only_read_is_taken(machine: Machine, mode: int) -> None:
    write(machine, "", mode=mode)
    assert Settings.load(machine=machine).file is not None


def test_a_directory_that_is_open_to_others_is_refused_with_the_cure(machine: Machine) -> None:
    machine.latch_directory.chmod(0o755)
    with pytest.raises(ConfigError) as caught:
        Settings.load(machine=machine)
    assert str(caught.value) == f"{machine.latch_directory}: has mode 0755, must be closed to others"
    assert caught.value.hint == f"chmod 700 {machine.latch_directory}"


def test_secrets_that_are_open_to_others_are_refused_with_the_cure(machine: Machine) -> None:
    secrets = write(machine, "", name="secrets.toml", mode=0o644)
    with pytest.raises(ConfigError) as caught:
        Settings.load(machine=machine)
    assert str(caught.value) == f"{secrets}: has mode 0644, must be closed to others"
    assert caught.value.hint == f"chmod 600 {secrets}"


def test_all_wrong_modes_are_said_and_the_first_is_cured(machine: Machine) -> None:
    machine.latch_directory.chmod(0o755)
    secrets = write(machine, "", name="secrets.toml", mode=0o644)
    file = write(machine, "", mode=0o666)
    with pytest.raises(ConfigError) as caught:
        Settings.load(machine=machine)
    assert [problem.file for problem in caught.value.problems] == list(
        map(str, (machine.latch_directory, secrets, file))
    )
    assert isinstance(caught.value, UnsafeModes)
    assert caught.value.hint == f"chmod 700 {machine.latch_directory}"


def test_wrong_modes_and_wrong_values_are_said_together_and_are_not_modes_alone(machine: Machine) -> None:
    machine.latch_directory.chmod(0o750)
    write(machine, "state_dir = 1")
    with pytest.raises(ConfigError) as caught:
        Settings.load(machine=machine)
    assert [problem.key for problem in caught.value.problems] == [None, "state_dir"]
    assert not isinstance(caught.value, UnsafeModes)


def test_a_directory_of_a_stranger_is_refused(machine: Machine) -> None:
    stranger = Machine(
        uid=machine.uid + 1,
        gid=machine.gid,
        user="stranger",
        home=machine.home,
        environment={},
        latch_directory=machine.latch_directory,
        latchkey_directory=machine.latchkey_directory,
    )
    reason = f"belongs to uid {os.getuid()}, must belong to uid {os.getuid() + 1}"
    with pytest.raises(ConfigError, match=reason):
        Settings.load(machine=stranger)


@pytest.mark.parametrize("name", ["LATCH_DIRECTORY", "LATCHKEY_DIRECTORY"])
def test_our_directory_is_not_the_home(tmp_path: Path, name: str) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    machine = Machine.read({"HOME": str(tmp_path / "home"), name: str(tmp_path / "home")})
    with pytest.raises(ConfigError) as caught:
        Settings.load(machine=machine)
    assert str(caught.value) == f"{tmp_path / 'home'}: is or contains the home directory"
