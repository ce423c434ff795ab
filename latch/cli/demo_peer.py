"""The extension that ``latch demo`` runs in the sandbox: two tools, a guard, and a tool that never answers.

It is run as a program, from a copy that lies beside a copy of the SDK, and is imported by nobody.
"""

from __future__ import annotations

import signal
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Register and serve until the host says exit."""
    # NOTE: the SDK lies beside this file when it runs; inside the package there is no such module.
    from sdk import Extension, allow, deny

    extension = Extension()

    @extension.tool(description="Count the words of a text.")
    def count_words(arguments: dict[str, Any]) -> dict[str, int]:
        return {"words": len(str(arguments.get("text", "")).split())}

    @extension.tool(description="Write a file.")
    def write_file(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            with open(str(arguments["path"]), "w", encoding="utf-8") as stream:
                stream.write("written by the demo")
        except OSError as error:
            return {"written": False, "error": error.strerror}
        return {"written": True, "error": None}

    @extension.tool(description="Never answer.")
    def hang(arguments: dict[str, Any]) -> None:
        while True:
            signal.pause()

    @extension.guard("tool.execute")
    def judge(action: str, payload: dict[str, Any]) -> dict[str, Any]:
        return deny("the arguments mention a secret") if "secret" in str(payload) else allow()

    extension.run()


if __name__ == "__main__":
    main()
