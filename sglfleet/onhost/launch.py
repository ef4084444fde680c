"""Start the engine with secrets that stand in no argv, log line or /server_info.

systemd hands the secrets over as files (LoadCredential). Variables in UPPER_CASE go into the environment. Flags
(api-key) are set on the parsed arguments, so they never were in an argv; the engine prints its arguments and lists
them in /server_info through its own redactor, which is told that these fields are secret too. Where a release has no
such redactor, or it does not work, nothing is started.

Read in sglang 0.5.23: srt/sampling/watermarking/core.py `redact_watermark_secrets`, used in srt/entrypoints/engine.py
`_server_args_for_logging` and srt/entrypoints/http_server.py `server_info`.
"""

from __future__ import annotations

import os
import sys


def read() -> tuple[dict[str, str], dict[str, str]]:
    """(environment, flags) of the credentials."""
    folder = os.environ["CREDENTIALS_DIRECTORY"]
    environment: dict[str, str] = {}
    flags: dict[str, str] = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            (environment if name.isupper() else flags)[name] = f.read()
    return environment, flags


def hide(fields: list[str]) -> None:
    """Make the engine's redactor hide these fields too, and see that it does."""
    from sglang.srt.sampling.watermarking import core

    core.WATERMARK_SECRET_FIELD_NAMES = core.WATERMARK_SECRET_FIELD_NAMES | frozenset(fields)
    probe = dict.fromkeys(fields, "shown")
    if "shown" in repr(core.redact_watermark_secrets({"internal_states": [probe], **probe})):
        raise RuntimeError("the redactor lets them through")


def main() -> None:
    environment, flags = read()
    os.environ.update(environment)
    waived = "--sglfleet-leak-waived" in sys.argv
    argv = [a for a in sys.argv[1:] if a != "--sglfleet-leak-waived"]
    if not flags:  # nothing that the engine would print: start it as it is always started
        os.execv(sys.executable, [sys.executable, "-m", "sglang.launch_server", *argv])  # noqa: S606
    fields = [name.replace("-", "_") for name in flags]
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    try:
        from sglang.srt.plugins import load_plugins
    except ImportError:
        pass
    else:
        load_plugins()
    if not waived:
        try:
            hide(fields)
        except Exception as e:
            sys.exit("launch: this engine would print {} ({}): not started".format(", ".join(flags), type(e).__name__))
    server_args = prepare_server_args(argv)
    for name, value in flags.items():
        field = name.replace("-", "_")
        if not hasattr(server_args, field):
            sys.exit(f"launch: this engine has no --{name}: not started")
        setattr(server_args, field, value)
    try:
        run_server(server_args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    main()
