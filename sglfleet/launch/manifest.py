"""Launch commands in YAML: docker-compose files, Kubernetes manifests of any kind, SGLang's own `--config` files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import yaml

from sglfleet.launch import shell
from sglfleet.launch.command import IN_MANIFEST, Launch, expand, from_words, image_release

_CONFIG_KEYS = {
    "model-path", "model", "tp-size", "tp", "tensor-parallel-size", "mem-fraction-static", "attention-backend", "port",
    "trust-remote-code", "quantization", "kv-cache-dtype", "context-length", "served-model-name",
    "chunked-prefill-size", "max-running-requests", "moe-runner-backend", "enable-dp-attention", "dp-size",
    "disable-radix-cache",
}  # fmt: skip


class ManifestError(ValueError):
    """A YAML file that cannot be read, with line and column."""


def find(text: str, file: str) -> list[Launch]:
    """Every launch command in all documents. Raises ManifestError for text that is no YAML."""
    out: list[Launch] = []
    for document in _documents(text, file):
        if isinstance(document, yaml.MappingNode):
            out += list(_containers(document, file, "compose" if _key(document, "services") else "kubernetes"))
            out += list(_configs(document, file, top=True))
    return out


def flags(text: str, file: str) -> tuple[str, ...]:
    """All that a file named by `--config` holds, whatever its keys are. Raises ManifestError as the engine stops: no
    YAML, or no mapping."""
    documents = _documents(text, file)
    if len(documents) > 1 or not all(isinstance(one, yaml.MappingNode) for one in documents):
        raise ManifestError(f"{file}: no mapping of flags to values: write `FLAG: VALUE` lines")
    return tuple(token for one in documents for k, v in one.value for token in _flag(str(k.value), v))


def _documents(text: str, file: str) -> list[yaml.Node]:
    try:
        return list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise ManifestError(f"{where}: no YAML: {getattr(error, 'problem', error)}: correct the syntax") from None


def _containers(node: yaml.Node, file: str, form: str) -> Iterator[Launch]:
    """Anything with a command or args below `node`: containers of pods, compose services, serving runtimes."""
    if isinstance(node, yaml.MappingNode):
        command, args = (_words(_key(node, name)) for name in (("command", "args")))
        entry = _words(_key(node, "entrypoint"))
        words = [*entry, *command, *args]
        if words:
            launch = _launch(node, words, file, form)
            if launch:
                yield launch
                return
        for _, child in node.value:
            yield from _containers(child, file, form)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _containers(child, file, form)


def _launch(node: yaml.MappingNode, words: list[str], file: str, form: str) -> Launch | None:
    env = _environment(_key(node, "environment") or _key(node, "env"))
    place = _key(node, "command") or _key(node, "args") or _key(node, "entrypoint") or node
    where = f"{file}:{place.start_mark.line + 1}"
    image = _key(node, "image")
    release = image_release(image.value) if isinstance(image, yaml.ScalarNode) else ""
    found = None
    if form == "kubernetes":  # before anything runs; what is not set stays as it is written
        words = [IN_MANIFEST.sub(lambda m: env.get(m[1], m[0]), word) for word in words]
    if not words[0].startswith("-") or "sglang" in (image.value if isinstance(image, yaml.ScalarNode) else ""):
        found = from_words([expand(w, env) for w in words], where, env, form)
    if found is None:
        script = next((w for i, w in enumerate(words) if i and words[i - 1] in ("-c", "-lc", "-ec")), "")
        inside = shell.find(script, file, form, env) if "sglang" in script else []
        found = inside[0] if inside else None
    if found is None:
        return None
    # lines of a script in a string are not lines of the file
    notes = tuple(re.sub(rf"^{re.escape(file)}:\d+(?=: )", lambda _: where, note) for note in found.notes)
    env = {**env, **found.env}
    gpus = _gpus(node) or found.gpus
    return Launch(where, found.tokens, env, form, release or found.sglang, gpus, notes, found.devices)


def _configs(node: yaml.Node, file: str, top: bool = False) -> Iterator[Launch]:
    """Mappings whose keys are flags: SGLang's `--config` file, or one role of a larger file.

    The engine puts `--` before the keys of its own file as they stand, and JSON in the place of a mapping
    (server_args_config_parser.py, 0.5.9 to 0.5.23): `tp_size` is refused there.
    """
    if not isinstance(node, yaml.MappingNode):
        for child in node.value if isinstance(node, yaml.SequenceNode) else ():
            yield from _configs(child, file)
        return
    keys = {str(k.value).replace("_", "-") for k, _ in node.value if isinstance(k, yaml.ScalarNode)}
    plain = all(not isinstance(v, yaml.MappingNode) for _, v in node.value)
    own = top and isinstance(_key(node, "model-path") or _key(node, "model_path"), yaml.ScalarNode)
    if (plain or own) and len(keys & _CONFIG_KEYS) >= min(2, len(keys)) and keys & _CONFIG_KEYS:
        tokens: list[str] = []
        for key, value in node.value:
            tokens += _flag(str(key.value) if own else str(key.value).replace("_", "-"), value)
        yield Launch(f"{file}:{node.start_mark.line + 1}", tuple(tokens), {}, "config")
        return
    for _, child in node.value:
        yield from _configs(child, file)


def _flag(name: str, value: yaml.Node) -> list[str]:
    if isinstance(value, yaml.MappingNode):
        return ["--" + name, json.dumps(_plain(value))]
    if isinstance(value, yaml.SequenceNode):
        return ["--" + name, *(str(item.value) for item in value.value)]
    if value.tag == "tag:yaml.org,2002:bool":
        return ["--" + name] if value.value.lower() in ("true", "yes", "on") else ["--no-" + name]
    if value.tag == "tag:yaml.org,2002:null":
        return []
    return [f"--{name}={value.value}"] if value.value.startswith("-") else ["--" + name, value.value]


def _key(node: yaml.Node, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((v for k, v in node.value if isinstance(k, yaml.ScalarNode) and k.value == name), None)


def _words(node: yaml.Node | None) -> list[str]:
    if isinstance(node, yaml.SequenceNode):
        return [str(item.value) for item in node.value if isinstance(item, yaml.ScalarNode)]
    if isinstance(node, yaml.ScalarNode) and node.value:
        try:
            return shlex.split(node.value)
        except ValueError:
            return str(node.value).split()
    return []


def _environment(node: yaml.Node | None) -> dict[str, str]:
    out: dict[str, str] = {}
    if isinstance(node, yaml.MappingNode):
        return {str(k.value): str(v.value) for k, v in node.value if isinstance(v, yaml.ScalarNode)}
    for item in node.value if isinstance(node, yaml.SequenceNode) else ():
        if isinstance(item, yaml.ScalarNode):
            name, equals, value = str(item.value).partition("=")
            if equals:
                out[name] = value
        else:
            name_node, value_node = _key(item, "name"), _key(item, "value")
            if isinstance(name_node, yaml.ScalarNode) and isinstance(value_node, yaml.ScalarNode):
                out[name_node.value] = value_node.value
    return out


def _gpus(node: yaml.MappingNode) -> int | None:
    """GPUs a container asks for: `nvidia.com/gpu` limits, or compose's device reservation."""
    data = _plain(node)
    resources = data.get("resources") or {}
    for side in ("limits", "requests"):
        count = (resources.get(side) or {}).get("nvidia.com/gpu")
        if str(count).isdigit():
            return int(str(count))
    devices = (((data.get("deploy") or {}).get("resources") or {}).get("reservations") or {}).get("devices") or []
    for device in devices:
        if str(device.get("count", "")).isdigit():
            return int(str(device["count"]))
        if device.get("device_ids"):
            return len(device["device_ids"])
    return None


def _plain(node: yaml.MappingNode) -> dict[str, Any]:
    """A mapping as data; an empty one where it cannot be built."""
    loader: Any = yaml.SafeLoader("")
    try:
        return dict(loader.construct_document(node))
    except yaml.YAMLError:
        return {}
    finally:
        loader.dispose()
