"""A service file: one SGLang server. The models say what may stand in it; `validators.load` reads it.

Knows nothing of releases, GPUs or hosts: whether a flag exists and what it does is the judge's business.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from validators.fields import (
    AbsPath,
    ArchName,
    ArgName,
    ArgValue,
    Bool,
    Canary,
    Count,
    Day,
    EnvName,
    EnvValue,
    FlagName,
    GroupName,
    Int,
    Margin,
    ModelPath,
    Name,
    Reason,
    Release,
    Seconds,
    Share,
    Text,
    Url,
    User,
    WrongError,
    absolute,
)
from validators.verdict import Policy


class Part(BaseModel):
    """Base of every mapping in a service file: unknown keys are errors, nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EngineSpec(Part):
    """The pinned engine. Without `pins` everything besides SGLang is what that release pins itself."""

    sglang: Release = Field(description="Exact SGLang release.", examples=["0.5.23"])
    pins: dict[Text, Release] = Field(
        default={},
        description="Versions that differ from the release's own pins: torch, flashinfer, kernel, or a package's name.",
        examples=[{"flashinfer": "0.7.4"}],
    )
    venv: Text = Field(default="managed", description="`managed`, or the path of a venv that exists on the host.")
    python: Release | None = Field(default=None, description="Python of a managed venv.", examples=["3.12"])
    index_url: Url | None = Field(default=None, description="Package index to install from.")
    wheelhouse: AbsPath | None = Field(default=None, description="Folder on the host with wheels; no index is asked.")

    @field_validator("venv")
    @classmethod
    def _venv(cls, value: str) -> str:
        return value if value == "managed" else absolute(value)

    @model_validator(mode="after")
    def _one_source(self) -> EngineSpec:
        if self.index_url and self.wheelhouse:
            raise WrongError("both `index_url` and `wheelhouse`", "keep one")
        return self


class ModelSpec(Part):
    """The checkpoint. A bare path stands for `{path: …}`."""

    path: ModelPath = Field(
        description="Folder on the host with config.json and the weights.", examples=["/models/Qwen3"]
    )
    config: Text | None = Field(
        default=None, description="A copy of its config.json in the project, for checks without a host."
    )
    arch: ArchName | None = Field(
        default=None, description="Architecture, where no config.json can be read.", examples=["Qwen3MoeForCausalLM"]
    )


class Secret(Part):
    """Where the controller finds a secret. Exactly one of the two."""

    env: EnvName | None = Field(default=None, description="Environment variable of the controller.")
    file: Text | None = Field(default=None, description="File on the controller.")

    @model_validator(mode="after")
    def _one(self) -> Secret:
        if (self.env is None) == (self.file is None):
            raise WrongError("a secret has exactly one source", "write {env: NAME} or {file: PATH}, never the value")
        return self


class OnUnsupported(Part):
    """What is done about flags that do not do what they say; a bare word stands for `{default: word}`."""

    default: Policy = Policy.AUTO
    flags: dict[FlagName, Policy] = Field(default={}, description="Differing policy per flag.")


class Waiver(Part):
    """Lets a flag through, until a date, for a reason that is shown every time."""

    flag: FlagName
    reason: Reason
    until: Day


class Rollout(Part):
    """How a change goes through the fleet."""

    canary: Canary | None = Field(
        default=None, description="Hosts that go first, or how many of them; the inventory's first host by default."
    )
    max_unavailable: Share = Field(default=1, description="Nodes of the service out at once: a number or a percentage.")
    soak: Seconds = Field(default=10.0, description="How long a new node must stay healthy before the next one.")
    start_timeout: Seconds = Field(default=1800.0, description="From start until a token is generated.")
    drain_timeout: Seconds = Field(default=600.0, description="The longest request a stop waits for.")
    on_failure: Literal["rollback", "halt"] = Field(
        default="rollback", description="What becomes of nodes already done."
    )
    keep: Count = Field(default=3, description="Releases kept on the host.")

    def nodes_out(self, total: int) -> int:
        """How many of `total` nodes may be out at once; at least one, as else nothing could ever change."""
        if isinstance(self.max_unavailable, int):
            return max(1, min(self.max_unavailable, total))
        return max(1, math.floor(total * int(self.max_unavailable[:-1]) / 100))


class Benchmark(Part):
    """What the deploy measures on the canary."""

    input_len: Count = 1000
    output_len: Count = 1000
    concurrency: tuple[Count, ...] = Field(default=(1, 16, 64), min_length=1)
    repeats: Count = 5
    prompts: Count | None = Field(default=None, description="Requests a run; by default a multiple of the concurrency.")
    margin: Margin = Field(default="2%", description="What counts as no effect.")
    on_slower: Literal["halt", "rollback", "report"] = "report"


class Verify(Part):
    """How it is proven that the flags do what they say."""

    profile: Bool = Field(
        default=False,
        description="Take a short trace on the first host: the strongest proof, but the engine's profiler can end it.",
    )
    correctness: Bool = Field(default=True, description="Compare greedy text with the same release without the flag.")
    on_contradicted: Literal["rollback", "report"] = "report"
    benchmark: Benchmark | None = None


class Nodes(Part):
    """A service over several nodes: the group whose hosts are its ranks."""

    group: GroupName
    rank_by: Literal["order", "name"] = Field(default="order", description="Inventory order, or sorted by name.")
    dist_port: Annotated[Int, Field(ge=1, le=65535)] = Field(default=20000, description="Port of the first rank.")


_RANK_ARGS = ("nnodes", "node-rank", "dist-init-addr", "nccl-init-addr")


class Service(Part):
    """One SGLang server definition."""

    service: Name = Field(description="Name of the service; the unit is sglang-NAME.service.", examples=["qwen35"])
    engine: EngineSpec
    model: ModelSpec
    gpus: Annotated[tuple[Annotated[Int, Field(ge=0, le=255)], ...], Field(min_length=1)] = Field(
        description="Indices of the GPUs on the host.", examples=[[0, 1, 2, 3]]
    )
    args: dict[ArgName, ArgValue] = Field(
        default={}, description="SGLang's own flags, without dashes, and their values."
    )
    env: dict[EnvName, EnvValue] = Field(default={}, description="Environment variables of the server.")
    secrets: dict[FlagName, Secret] = Field(
        default={}, description="Values of flags (api-key) or environment variables (HF_TOKEN) that nobody may read."
    )
    on_unsupported: OnUnsupported = OnUnsupported()
    allow: tuple[Waiver, ...] = ()
    rollout: Rollout = Rollout()
    verify: Verify = Verify()
    nodes: Nodes | None = None
    user: User | None = Field(default=None, description="The system user of the server; by default one of its own.")

    @field_validator("model", mode="before")
    @classmethod
    def _bare_path(cls, value: Any) -> Any:
        return value if isinstance(value, dict | ModelSpec) else {"path": value}

    @field_validator("on_unsupported", mode="before")
    @classmethod
    def _bare_word(cls, value: Any) -> Any:
        return value if isinstance(value, dict | OnUnsupported) else {"default": value}

    @field_validator("gpus")
    @classmethod
    def _distinct(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) != len(value):
            raise WrongError("a GPU is listed twice", "list each index once")
        return value

    @model_validator(mode="after")
    def _together(self) -> Service:
        for name in self.secrets.keys() & (self.args.keys() | self.env.keys()):
            raise WrongError(f"`{name}` is given openly and as a secret", "keep the secret", ("secrets", name))
        if self.nodes:
            for name in _RANK_ARGS:
                if name in self.args:
                    raise WrongError(
                        f"`{name}` beside `nodes:`", "remove it: it follows from the group's hosts", ("args", name)
                    )
        return self

    @property
    def unit(self) -> str:
        """Name of the systemd unit."""
        return f"sglang-{self.service}.service"

    @property
    def port(self) -> int:
        """Where it listens. SGLang's default has been 30000 in every release."""
        return _number(self.args.get("port"), 30000)

    @property
    def bind(self) -> str:
        """The address it listens on."""
        return str(self.args.get("host", "127.0.0.1"))

    @property
    def tp(self) -> int:
        """Tensor-parallel size, by any of its spellings."""
        found = (self.args[name] for name in ("tp-size", "tp", "tensor-parallel-size") if name in self.args)
        return _number(next(found, None), 1)

    def policy_for(self, flag: str) -> Policy:
        """`on_unsupported` of one flag."""
        return self.on_unsupported.flags.get(flag, self.on_unsupported.default)


def _number(value: Any, default: int) -> int:
    """A whole number as a person may have written it, quoted or not."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


class LaunchOverride(Part):
    """What a stand-in host needs to run the engine at all (no GPU); inventory data of lab hosts, after judging."""

    args: dict[ArgName, ArgValue] = {}
    env: dict[EnvName, EnvValue] = {}
    pins: dict[Text, Text] = Field(default={}, description="Versions that its engine has instead, `any` or `absent`.")
    drop: tuple[FlagName, ...] = Field(default=(), description="Flags of the judged command line that are left out.")
