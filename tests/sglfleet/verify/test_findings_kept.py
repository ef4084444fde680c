"""The last proof of a service, found again for measurements."""

from __future__ import annotations

from sglfleet.verify.document import Document, HostProof
from sglfleet.verify.findings import Proof
from sglfleet.verify.findings_kept import last
from sglfleet.verify.showing import keep
from validators.verdict import Status


def proof(flag, status):
    return Proof(flag, True, status, f"{flag}: why", "active", "keep")


def document(day, release, *proofs, error=""):
    return Document(
        "inventory.py", f"2026-11-{day}T10:00:00Z", (HostProof("h1", "demo", release, error=error, proofs=proofs),)
    )


def test_the_newest_of_the_release_that_was_asked_is_taken(tmp_path):
    folder = tmp_path / "reports"
    assert last("demo", "h1", folder=folder) is None
    keep(document("01", "aaa", proof("x", Status.PROVEN), proof("y", Status.CONTRADICTED)), str(folder))
    keep(document("02", "bbb", proof("x", Status.NOT_PROVEN)), str(folder))
    keep(document("03", "bbb", error="not reached"), str(folder))
    (folder / "proof-9.json").write_text("{")
    newest = last("demo", "h1", folder=folder)
    assert newest is not None
    assert (newest.release, newest.unproven(["x"])) == ("bbb", ("x",))
    old = last("demo", "h1", "aaa", folder)
    assert old is not None
    assert old.unproven(["x", "y", "never-looked-for"]) == ("y", "never-looked-for")
    assert old.contradicted(["x", "y"]) == ("y",)
    assert last("demo", "h2", folder=folder) is None
    assert last("demo", "h1", "ccc", folder) is None
