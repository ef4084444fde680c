"""The whole chain on real cards: facts, probe, judgement, start, four layers of proof, effect.

`chain.py one|two|cpu OUT SECONDS`: everything is written into OUT as it comes, so that a run that is cut off was not in
vain. Needs the engine on PYTHONPATH and the models in /tmp/model; `run.sh` brings both.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from sglfleet import nvidia
from sglfleet.verify import ship
from sglfleet.verify.correctness import compare
from sglfleet.verify.findings import Proof, prove
from sglfleet.verify.gathered import seen, unpack
from sglfleet.verify.probe import MODULES, disagreements
from sglfleet.verify.trace import Trace
from tests.gpu import scenarios, servers
from tests.gpu.scenarios import Scenario
from validators.case import Case
from validators.judge import judge
from validators.verdict import Decision, Judgement, Outcome, Verdict

HERE = Path(__file__).resolve().parent
MODEL = os.environ.get("MODEL", "/tmp/model/moe-word")  # where run.sh puts it
BEGIN = time.monotonic()


def say(*what: object) -> None:
    print(f"[{time.monotonic() - BEGIN:6.1f} s]", *what, flush=True)


class Chain:
    """State of one run, and the file it is kept in."""

    def __init__(self, which: str, out: Path, seconds: float) -> None:
        self.which, self.out, self.end = which, out, BEGIN + seconds
        self.scenarios = scenarios.ALL[which]
        self.flags = scenarios.FLAGS[which]
        self.logs = Path(tempfile.mkdtemp())
        self.kept: dict[str, Any] = {"which": which, "scenarios": {}}
        self.raw: dict[str, dict[str, Any]] = {}
        self.judged: dict[str, Judgement] = {}
        self.running: dict[str, servers.Running] = {}
        self.lock = threading.Lock()
        self.build: subprocess.Popen[bytes] | None = None

    def left(self) -> float:
        return self.end - time.monotonic()

    def note(self, name: str, **more: Any) -> None:
        self.kept["scenarios"].setdefault(name, {}).update(more)
        self.save()

    def save(self) -> None:
        with gzip.open(self.out / "evidence.json.gz", "wt") as file:
            json.dump({**self.kept, "raw": self.raw, "seconds": time.monotonic() - BEGIN}, file, default=str)
        with tarfile.open(self.out / "logs.tgz", "w:gz") as archive:
            archive.add(self.logs, "logs")

    def step(self, name: str, work: Callable[[], None]) -> None:
        """One step; what it throws is kept and the rest goes on."""
        try:
            work()
        except Exception:
            say(name, "FAILED", traceback.format_exc().strip().splitlines()[-1])
            self.kept.setdefault("failed", {})[name] = traceback.format_exc()[-3000:]
            self.save()

    # before launch

    def facts(self) -> None:
        collector = HERE.parents[1] / "sglfleet" / "collector.py"
        text = subprocess.run(
            [sys.executable, collector, "{}"], capture_output=True, text=True, timeout=60, check=False
        ).stdout
        told = json.loads(text.splitlines()[-1])
        self.kept["facts_raw"] = told
        found = nvidia.read(told["smi"])
        self.kept["facts"] = {
            "sm": sorted({g.sm for g in found.gpus or ()}), "gpus": len(found.gpus or ()), "driver": found.driver,
            "cuda": found.cuda, "interconnect": found.interconnect, "p2p": found.p2p, "error": found.error,
        }  # fmt: skip
        say("facts", self.kept["facts"])

    def judge(self) -> None:
        facts = self.kept.get("facts") or {}
        for s in self.scenarios:
            raw = {
                "sglang": scenarios.RELEASES[self.which][0], "flashinfer": scenarios.RELEASES[self.which][1],
                "sm": (facts.get("sm") or ["9.0"])[0],
                "gpus": facts.get("gpus") or 1, "interconnect": facts.get("interconnect") or "nvlink",
                "model_arch": scenarios.ARCH, "args": {**self.flags, **s.args},
            }  # fmt: skip
            if s.forced:
                raw["allow"] = [{"flag": s.flag, "reason": "to see what it really does", "until": "2099-01-01"}]
            self.judged[s.name] = judged = judge(Case.from_json(raw, today=date(2026, 11, 29)))
            mine = [v for v in judged.verdicts if v.flag in (s.flag, scenarios.FUSION, scenarios.OLD_FUSION)]
            shown = [f"{v.flag}: {v.outcome}, {v.decision}{', redundant' if v.redundant else ''}" for v in mine]
            self.note(s.name, judged=shown, decision=str(judged.decision))
            say("judged", s.name, judged.decision, "; ".join(shown))

    def probe(self) -> None:
        """The engine's own word on three command lines and on all generators, in processes of their own."""
        names = [
            s.name for s in self.scenarios if s.name in ("triton", "torch", "refused", "fusion-forced", "dp", "on")
        ]
        children = {}
        for name in names:
            spec = {"argv": ["--model-path", MODEL, *self.argv(name)], "sms": ["8.9", "9.0", "10.0", "12.0"]}
            spec["sms"] = spec["sms"] if name == names[0] else []
            script = self.logs / "ask.pyz"
            script.write_bytes(ship.bundle(MODULES, MODULES[0]))
            children[name] = subprocess.Popen(
                [sys.executable, script, json.dumps(spec)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        for name, child in children.items():
            answer = json.loads(child.communicate(timeout=max(1.0, min(240.0, self.left() - 200)))[0].splitlines()[-1])
            found = disagreements(answer, self.judged[name].verdicts) if name in self.judged else ()
            (self.kept.setdefault("probe", {}))[name] = {"answer": answer, "disagreements": [str(d) for d in found]}
            said = answer.get("arguments") or {}
            say("probe", name, answer["gaps"], said.get("raised", ""), [str(d) for d in found])
        self.save()

    def argv(self, name: str) -> list[str]:
        """The flags as asked, so that what was judged idle or failing really runs."""
        scenario = next(s for s in self.scenarios if s.name == name)
        out: list[str] = []
        for flag, value in {**self.flags, **scenario.args}.items():
            out += [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
        return out

    # launch and proof

    def wave(self, number: int, limit: float) -> None:
        mine = [s for s in self.scenarios if s.wave == number]
        for s in mine:
            index = self.scenarios.index(s)
            self.running[s.name] = servers.start(
                s.name, 30000 + 2000 * index, ["--model-path", MODEL, *self.argv(s.name)], self.logs
            )
        say("started", [s.name for s in mine])
        threads = [threading.Thread(target=self.step, args=(s.name, lambda s=s: self.serve(s, limit))) for s in mine]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def serve(self, s: Scenario, limit: float) -> None:
        running = self.running[s.name]
        up = servers.wait(running, min(limit, self.left() - 20))
        say(s.name, f"healthy after {running.healthy:.0f} s" if up else f"not up, exit code {running.process.poll()}")
        if not up:
            self.note(s.name, started=False, code=running.process.poll(), tail=running.text()[-6000:])
            self.crashed(s, running)
            servers.stop(running)
            return
        with self.lock:  # one profile at a time
            spec = {"pid": running.process.pid, "port": running.port, "log": str(running.log)}
            script = ship.script(json.dumps(spec), sys.executable)
            got = subprocess.run(["sh"], input=script, capture_output=True, text=True, timeout=150, check=False)
            if got.returncode or not got.stdout:
                raise RuntimeError(got.stderr[-2000:])
            raw = unpack(got.stdout)
            raw["log"] = raw.get("log", "")[:400000]
            self.raw[s.name] = raw
            alive = running.server.ask("/health_generate", timeout=30).status
            self.note(s.name, started=True, healthy=running.healthy, after_profile=alive, spent=raw["seconds"])
            say(
                s.name,
                "collected",
                raw["seconds"],
                raw["gaps"],
                [(t["stage"], t["rank"]) for t in raw.get("traces", ())],
            )
        servers.stop(running)

    def crashed(self, s: Scenario, running: servers.Running) -> None:
        from sglfleet.diagnosis import diagnose

        found = [str(d) for d in diagnose(running.text(), s.args)]
        self.note(s.name, diagnosis=found)
        say(s.name, "diagnosis", found)

    def findings(self) -> None:
        for s in self.scenarios:
            raw = self.raw.get(s.name)
            if raw is None:
                continue
            controls: dict[str, tuple[Trace, ...]] = {}
            reference = None
            if s.control in self.raw:
                controls = {s.flag: tuple(Trace.from_json(t) for t in self.raw[s.control].get("traces") or ())}
                reference = self.raw[s.control].get("outputs")
            proofs: list[Proof] = list(prove(self.verdicts(s), seen(raw, controls)))
            answers = compare(raw.get("outputs") or [], reference)
            mine = next((p for p in proofs if p.flag == s.flag), None)
            self.note(
                s.name, proofs=[p.to_json() for p in proofs], correctness=answers.to_json(),
                expected=s.expected, found=str(mine.status) if mine else "",
            )  # fmt: skip
            good = not s.expected or (mine is not None and str(mine.status) == s.expected)
            say(
                "FINDING",
                s.name,
                s.flag,
                "->",
                mine and f"{mine.status}: {mine.reason}",
                "" if good else "(UNEXPECTED)",
            )
            for finding in mine.findings if mine else ():
                e = finding.expectation
                shown = e and f"{e.kind} {'present' if e.present else 'absent'} {e.present or e.absent} {e.where}"
                say("   ", finding.status, "|", shown, "|", finding.reason, "|", finding.evidence[:2])
            say("   output:", answers.status, answers.reason)

    def verdicts(self, s: Scenario) -> list[Verdict]:
        """The judgement's own; where its rules bring no expectation for the flag under test, the table's."""
        judged = self.judged.get(s.name)
        out = list(judged.verdicts) if judged else []
        table = scenarios.EXPECTS.get((s.flag, s.args.get(s.flag, self.flags.get(s.flag, "auto"))), ())
        if not any(v.flag == s.flag for v in out) and s.flag:
            out.append(Verdict(s.flag, s.args.get(s.flag), Outcome.ACTIVE, Decision.KEEP, "not judged", "none"))
        for index, v in enumerate(out):
            if v.flag != s.flag:
                continue
            # it runs, whatever was decided: the question is only whether it does what it says
            keep = v.decision if v.decision in (Decision.KEEP, Decision.WARN) else Decision.WARN
            kinds = {e.kind for e in v.expects}
            more = v.expects if kinds & {"kernel", "operator"} else (*v.expects, *table)
            if v.outcome is Outcome.INERT:
                more = tuple(replace(e, present="", absent=e.present or e.absent) for e in more)
            out[index] = replace(v, decision=keep, expects=more)
        return out

    # effect

    def bench(self) -> None:
        """Fresh servers: one that was profiled can die of it a minute later, inside the benchmark."""
        plans = scenarios.BENCH[self.which]
        arms = list(dict.fromkeys(arm for one in plans for arm in one.arms))
        if not arms or self.left() < 150:
            say("no time or no arms for a benchmark", arms, self.left())
            return
        fresh = {}
        for index, name in enumerate(arms):
            flags = ["--model-path", MODEL, *self.argv(name)]
            fresh[name] = self.running[f"bench-{name}"] = servers.start(
                f"bench-{name}", 50000 + 2000 * index, flags, self.logs
            )
        up = {name for name, running in fresh.items() if servers.wait(running, min(150.0, self.left() - 60))}
        say("fresh servers", sorted(up))
        for one in plans:
            if not set(one.arms) <= up:
                continue
            deadline = time.time() + (self.left() - 20) * one.share
            shape = [str(one.prompts), str(one.concurrency), str(one.length), str(deadline)]
            ports = [f"{arm}={fresh[arm].port}" for arm in one.arms]
            say("bench", one)
            out = self.out / f"bench-{'-'.join(one.arms)}.jsonl"
            command = [sys.executable, HERE / "bench.py", out, MODEL, *shape, *ports]
            subprocess.run(command, timeout=max(1.0, self.left()), check=False)

    def start_build(self) -> None:
        code = "from flashinfer.jit.comm import gen_trtllm_comm_module as g; g().build_and_load()"
        with (self.logs / "build.txt").open("wb") as log:
            self.build = subprocess.Popen([sys.executable, "-c", code], stdout=log, stderr=subprocess.STDOUT)

    def wait_build(self) -> None:
        if self.build is not None:
            code = self.build.wait(timeout=max(1.0, self.left() - 150))
            say("FlashInfer's comm kernels built, exit code", code)

    def run(self) -> None:
        try:
            if self.which == "two":
                self.step("build", self.start_build)
            self.step("facts", self.facts)
            self.step("judge", self.judge)
            self.step("probe", self.probe)  # before the servers: beside five that start it takes minutes
            self.step("wave 1", lambda: self.wave(1, 300))
            self.step("findings", self.findings)
            self.step("build", self.wait_build)
            self.step("wave 2", lambda: self.wave(2, 200))
            self.step("findings", self.findings)
            self.step("bench", self.bench)
        finally:
            for running in self.running.values():
                servers.stop(running)
            self.save()
            say("end")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    Chain(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])).run()
